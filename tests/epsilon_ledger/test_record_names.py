"""Numbers that no model tells apart name one record, and books of before find theirs by other bytes."""

from __future__ import annotations

from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from epsilon_ledger.local import LocalRefused, LocalRun, attach
from epsilon_ledger.local_book import LocalBook
from epsilon_ledger.record_names import RecordNames
from ledger.wire.malformed import Malformed

COUNT = 40
GENERATOR = torch.Generator().manual_seed(7)
NAN = float("nan")
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
TARGETS = torch.arange(COUNT) % 2


class _Filled(torch.nn.Module):
    """Takes numbers of any type, and 0 for a missing one."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The same numbers."""
        return torch.nan_to_num(inputs.float())


def _run(book: Path, inputs: torch.Tensor, targets: torch.Tensor = TARGETS, **changes: Any) -> LocalRun:  # noqa: ANN401 - of attach
    model = torch.nn.Sequential(_Filled(), torch.nn.Linear(inputs.shape[1], 2))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    full: dict[str, Any] = {"budget": "2", "epsilon": "1.6", "steps": 4, "batch_size": 20}
    return attach(model, optimiser, cross_entropy, (inputs, targets), book=book, **{**full, **changes})


def _taken(run: LocalRun) -> int:
    with run:
        return len(list(run))


def _missing() -> torch.Tensor:
    inputs = torch.randn((COUNT, 4), generator=GENERATOR)
    inputs[:, 2] = NAN
    return inputs


def _names(*inputs: torch.Tensor) -> list[list[bytes]]:
    return [RecordNames.of_numbers((part, torch.zeros(len(part))), len(part)).names for part in inputs]


def _of_before(inputs: torch.Tensor) -> list[bytes]:
    """As the program before wrote them: 64-bit floats with the bits that came."""
    arrays = [
        (part.to(torch.float64) + 0.0).reshape(len(inputs), -1).numpy() for part in (inputs, TARGETS[: len(inputs)])
    ]
    return [b"record\n" + b"".join(array[place].tobytes() for array in arrays) for place in range(len(inputs))]


def _in_a_book_of_before(book: Path, inputs: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    run, bits = _run(book, inputs), _of_before(inputs)
    monkeypatch.setattr(run, "_names", RecordNames("n", bits, bits, bits, 1))
    assert _taken(run) == 4


@pytest.mark.parametrize("other", ["negated", "divided", "payload", "wider"])
def test_another_nan_is_no_new_budget(tmp_path: Path, other: str) -> None:
    """A sign that a negation reversed, the one that 0/0 has on x86, a payload, or another type: the same records."""
    inputs = _missing()
    assert _taken(_run(tmp_path / "book.sqlite", inputs)) == 4
    again = inputs.double() if other == "wider" else inputs.clone()
    if other == "negated":
        again[:, 2] = -inputs[:, 2]
    elif other == "divided":
        again[:, 2] = torch.zeros(COUNT) / torch.zeros(COUNT)
    elif other == "payload":
        again.view(torch.int32)[:, 2] = 0x7FC00000 + 1 + torch.arange(COUNT, dtype=torch.int32)
    with pytest.raises(LocalRefused, match=r"^charge: "), _run(tmp_path / "book.sqlite", again) as run:
        list(run)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_signs_of_nan_and_of_zero_name_nothing_in_any_type(dtype: torch.dtype) -> None:
    """And infinities of either sign are different, where the type has them."""
    row = torch.tensor([[NAN, 0.0, 1.0]]).to(dtype)
    reversed_row = (-row.float()).to(dtype)
    first, second = _names(row, torch.where(row.float() == 1, row.float(), reversed_row.float()).to(dtype))
    assert first == second
    if torch.tensor(torch.inf).to(dtype).float().isinf():
        infinite, negative = _names(torch.tensor([[torch.inf]]).to(dtype), torch.tensor([[-torch.inf]]).to(dtype))
        assert infinite != negative


def test_equal_numbers_of_any_type_name_one_record() -> None:
    """Integers, truth values, floats, and complex numbers by their real part."""
    row = torch.tensor([[0, 1, 1]])
    types = (torch.bool, torch.uint8, torch.int64, *FLOATS, torch.complex64)
    (first, *others) = _names(*(row.to(dtype) for dtype in types))
    assert all(names == first for names in others)
    assert _names(torch.tensor([[0.0, 1.0, complex(1, 2)]])) == [first]


def test_a_64_bit_number_has_the_name_of_the_32_bit_one_it_becomes(tmp_path: Path) -> None:
    """A table read in 64 bits and narrowed for the next run is no new set of records, in either order."""
    wide = torch.rand((COUNT, 4), dtype=torch.float64, generator=GENERATOR)
    for book, first, second in (("a", wide, wide.float()), ("b", wide.float(), wide)):
        assert _taken(_run(tmp_path / book, first)) == 4
        with pytest.raises(LocalRefused, match=r"^charge: "), _run(tmp_path / book, second) as run:
            list(run)


def test_a_long_whole_number_has_the_name_of_the_float_it_becomes() -> None:
    """In any type of 64 bits: so records that 32 bits do not tell apart share names, and are different all the same."""
    times = torch.arange(1_700_000_000, 1_700_000_100)[::2, None]
    names, *others = _names(times, times.double(), times.float())
    assert others == [names, names]
    assert len(set(names)) == 2
    assert RecordNames.of_numbers((times, torch.zeros(50)), 50).most == 1
    least, below = _names(torch.tensor([[1 << 24]]), torch.tensor([[(1 << 24) - 1]]))
    assert least != below


def test_what_some_devices_take_for_zero_is_zero() -> None:
    """A name does not change with the process's treatment of numbers below the normal ones; the least normal one is."""
    tiny = torch.finfo(torch.float32).tiny
    zero, below, negative, least = _names(
        *(torch.tensor([[value]], dtype=torch.float64) for value in (0.0, tiny / 2, -5e-324, tiny))
    )
    assert zero == below == negative != least


def test_records_that_differ_by_no_more_than_their_nan_are_one_several_times() -> None:
    """Their group is protected together; numbers that 32 bits do not tell apart are different records all the same."""
    inputs = torch.tensor([[NAN], [-torch.tensor(NAN)], [1.0]])
    assert RecordNames.of_numbers((inputs, torch.zeros(3)), 3).most == 2
    close = torch.tensor([[1.0], [1.0 + 1e-12]], dtype=torch.float64)
    assert RecordNames.of_numbers((close, torch.zeros(2)), 2).most == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.int64, torch.bool], ids=str)
def test_the_bytes_of_before_are_looked_for(dtype: torch.dtype) -> None:
    """Of each record the 64-bit floats of before, and the bytes of its own type of a still earlier form."""
    inputs = (torch.randn((COUNT, 3), generator=GENERATOR) * 3).to(dtype)
    names = RecordNames.of_numbers((inputs, TARGETS), COUNT)
    parts = [np.ascontiguousarray(part.numpy()) for part in (inputs, TARGETS)]
    for place, bits in enumerate(_of_before(inputs)):
        own = b"record\n" + b"".join(part[place].tobytes() for part in parts)
        assert names.known_as(place) >= {bits, own}


@pytest.mark.parametrize("missing", [(2,), (0, 1, 2, 3)])
@pytest.mark.parametrize("change", ["none", "negated", "one sign"])
def test_a_book_of_before_finds_its_nan(
    tmp_path: Path, missing: tuple[int, ...], change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the bits that came, with reversed ones, and written alike, though the book has a mixture of signs."""
    inputs = torch.randn((COUNT, 5), generator=GENERATOR)
    inputs[:, missing] = NAN
    inputs[::3, missing[-1]] *= -1
    _in_a_book_of_before(tmp_path / "book.sqlite", inputs, monkeypatch)
    again = inputs.clone()
    if change == "negated":
        again[:, missing] = -inputs[:, missing]
    elif change == "one sign":
        again[:, missing] = NAN
    with pytest.raises(LocalRefused, match=r"^charge: "), _run(tmp_path / "book.sqlite", again) as run:
        list(run)


@pytest.mark.parametrize("change", ["none", "negated", "one sign"])
def test_many_nan_of_one_record_are_looked_for_with_one_sign(change: str) -> None:
    """And as they came: not with each of a thousand mixtures."""
    given = torch.full((1, 10), NAN)
    given[0, 0] *= -1 if change != "one sign" else 1
    names = RecordNames.of_numbers((given, TARGETS[:1]), 1)
    (before,) = _of_before(-given if change == "negated" else given)
    assert before in names.known_as(0)
    assert len(names.known_as(0)) < 8


def test_of_two_records_of_one_name_the_one_that_a_book_of_before_lacks_is_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later it is found alone: its loss is not left with its neighbour."""
    old = torch.rand((COUNT, 4), dtype=torch.float64, generator=GENERATOR) + 1
    near = old + 1e-12
    book = tmp_path / "book.sqlite"
    _in_a_book_of_before(book, old, monkeypatch)
    # The targets of both halves are the same.
    both = torch.cat([old[: COUNT // 2], near[: COUNT // 2]])
    with _run(book, both) as run, pytest.raises(LocalRefused, match=r"^charge: "):
        list(run)
    assert sorted(records for _, records in _sets(book)) == [COUNT // 2, COUNT]


@pytest.mark.parametrize("change", ["narrowed", "near", "mixed"])
def test_a_run_with_what_a_book_of_before_has_enters_its_names(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From then on 32-bit copies are found, and other mixtures of NaN, with all that the records had lost before."""
    old = torch.rand((COUNT, 7), dtype=torch.float64, generator=GENERATOR) + 1
    old[:, 1:6] = NAN
    old[:, 2] *= -1
    book = tmp_path / "book.sqlite"
    _in_a_book_of_before(book, old, monkeypatch)
    again = old.float() if change == "narrowed" else old.clone()
    if change == "near":
        again[:, 0] += 1e-12
    elif change == "mixed":
        again[:, 4] *= -1
    # Half of them alone: these are found, and the others are not known.
    run = _run(book, old[: COUNT // 2], targets=TARGETS[: COUNT // 2], epsilon="0.1")
    assert _taken(run) == 4
    (before,) = [ref for ref, _ in _sets(book) if ref in _charged(book)]
    with (
        pytest.raises(LocalRefused, match=r"^charge: "),
        _run(book, again[: COUNT // 2], targets=TARGETS[: COUNT // 2]) as refused,
    ):
        list(refused)
    assert _taken(_run(book, again[: COUNT // 2], targets=TARGETS[: COUNT // 2], epsilon="0.1")) == 4
    assert _charged(book) == {before}
    assert sorted(records for _, records in _sets(book)) == [COUNT // 2, COUNT]


def _sets(book: Path) -> list[tuple[str, int]]:
    with (
        closing(LocalBook(book, Fraction(2), Fraction(1, 100_000))) as opened,
        opened._book.read() as facts,  # noqa: SLF001 - what is recorded
    ):
        return [(ref, partition.records) for ref, partition in facts.partitions.items()]


def _charged(book: Path) -> set[str]:
    with (
        closing(LocalBook(book, Fraction(2), Fraction(1, 100_000))) as opened,
        opened._book.read() as facts,  # noqa: SLF001 - as above
    ):
        return {ref for charge in facts.charges.values() for ref in charge.partitions}


def test_an_identity_is_the_same_in_another_form_of_unicode(tmp_path: Path) -> None:
    """Composed or not, it is one person, in another run and in the same one."""
    composed, apart = [f"Ren\u00e9 {number}" for number in range(COUNT)], [f"Rene\u0301 {n}" for n in range(COUNT)]
    inputs = torch.randn((COUNT, 4), generator=GENERATOR)
    assert _taken(_run(tmp_path / "book.sqlite", inputs, identities=composed)) == 4
    with (
        pytest.raises(LocalRefused, match=r"^charge: "),
        _run(tmp_path / "book.sqlite", inputs, identities=apart) as run,
    ):
        list(run)
    with pytest.raises(Malformed, match=r"^identities: name one identity twice"):
        RecordNames.of_identities([composed[0], apart[0]], 2)
    for given, other in ((composed, apart), (apart, composed)):
        names = RecordNames.of_identities(given, COUNT)
        assert all(b"identity\n" + text.encode() in names.known_as(n) for n, text in enumerate(other))
