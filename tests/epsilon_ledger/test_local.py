"""The local door: the same budget whatever the records are called, charged first, posted at the end, told in full."""

from __future__ import annotations

import os
import re
import shlex
import signal
import stat
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy
from typer.testing import CliRunner

from epsilon_ledger.__main__ import assemble
from epsilon_ledger.local import LocalRefused, LocalRun, attach, read_table
from epsilon_ledger.local_book import LocalBook
from epsilon_ledger.record_names import RecordNames
from ledger.accounting.epsilon_report import reported_epsilon
from ledger.book.submitted_command import BookUnusable
from ledger.commands.entry import Entry
from ledger.files.state_folder import state_folder
from ledger.mechanisms.plan import Plan
from ledger.wire.exact_numbers import parse_number
from ledger.wire.malformed import Malformed
from tests.documentation.fenced_blocks import blocks, commands
from tests.factories.own_table import own_table
from tests.factories.stored import copy

PAGE = Path(__file__).parents[2] / "docs" / "local.md"
INPUTS = torch.randn((40, 3), generator=torch.Generator().manual_seed(1))
TARGETS = (INPUTS[:, 0] > 0).long()
FULL: dict[str, Any] = {"budget": "2", "epsilon": "1.6", "steps": 4, "batch_size": 20}


class _Narrowed(torch.nn.Module):
    """Takes numbers of any type, as 32-bit floats."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """The same numbers."""
        return inputs.float()


def _run(
    book: Path,
    records: slice | torch.Tensor = slice(None),
    dtype: torch.dtype = torch.float32,
    **changes: Any,  # noqa: ANN401 - of attach
) -> LocalRun:
    model = torch.nn.Sequential(_Narrowed(), torch.nn.Linear(3, 2))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    data = INPUTS[records].to(dtype), TARGETS[records]
    return attach(model, optimiser, cross_entropy, data, book=book, **{**FULL, **changes})


def _taken(run: LocalRun) -> int:
    with run:
        return len(list(run))


def test_a_model_whose_passes_write_into_its_weights_is_refused_before_the_charge(tmp_path: Path) -> None:
    """Tokens that one record alone has would be shortened in the weights, without noise."""
    words = torch.nn.Sequential(torch.nn.Embedding(12, 4, max_norm=1.0), torch.nn.Flatten(), torch.nn.Linear(12, 2))
    data = torch.arange(120).reshape(40, 3) % 12, TARGETS
    optimiser = torch.optim.SGD(words.parameters(), lr=0.5)
    book = tmp_path / "book.sqlite"
    with (
        pytest.raises(Malformed, match=r"^model\.0: has max_norm"),
        attach(words, optimiser, cross_entropy, data, book=book, **FULL) as run,
    ):
        list(run)
    # The whole budget is there for the next run.
    assert _taken(_run(book)) == FULL["steps"]


@pytest.fixture(scope="module")
def spent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A book that holds no second run of these records, for tests that leave it so."""
    book = tmp_path_factory.mktemp("spent") / "a book.sqlite"
    assert _taken(_run(book)) == 4
    return book


SAME: dict[str, tuple[slice | torch.Tensor, dict[str, Any]]] = {
    "as they are": (slice(None), {}),
    "in another order": (torch.arange(39, -1, -1), {}),
    "a part of them": (slice(0, 20), {}),
    "with a row twice": (torch.tensor([*range(40), 39]), {}),
    "in another type": (slice(None), {"dtype": torch.float64}),
}


@pytest.mark.parametrize("name", SAME)
def test_records_have_the_budget_that_is_left(spent: Path, name: str) -> None:
    """Whatever they are called: the second run is refused before a record is used, and told why."""
    records, changes = SAME[name]
    run = _run(spent, records, **changes)
    with pytest.raises(LocalRefused, match=r"^charge: "), run:
        list(run)


def test_a_changed_row_is_no_new_budget(spent: Path) -> None:
    """The other rows have what is left; the changed one alone is new."""
    changed = INPUTS.clone()
    changed[7] += 1
    model = torch.nn.Linear(3, 2)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    with (
        pytest.raises(LocalRefused),
        attach(model, optimiser, cross_entropy, (changed, TARGETS), book=spent, **FULL) as run,
    ):
        list(run)
    assert _taken(_run(spent, slice(0, 20), epsilon="0.1")) == 4


def test_other_records_have_a_budget_of_their_own(tmp_path: Path) -> None:
    """Until a set touches both: then both are charged."""
    book = tmp_path / "book.sqlite"
    assert _taken(_run(book, slice(0, 20))) == 4
    assert _taken(_run(book, slice(20, 40))) == 4
    for records in (slice(0, 40), slice(0, 20), slice(20, 40)):
        with pytest.raises(LocalRefused), _run(book, records) as run:
            list(run)


def test_identities_are_who_the_records_are(tmp_path: Path) -> None:
    """With them, other numbers of the same persons are the same records."""
    book, names = tmp_path / "book.sqlite", [f"person {number}" for number in range(20)]
    assert _taken(_run(book, slice(0, 20), identities=names)) == 4
    with pytest.raises(LocalRefused), _run(book, slice(20, 40), identities=names) as run:
        list(run)


def test_a_record_that_is_there_several_times_is_charged_as_such(tmp_path: Path) -> None:
    """Its ε is that of all of them together: the noise is greater, and the ledger's charge the same."""
    thrice = tmp_path / "thrice.sqlite"
    run = _run(thrice, torch.arange(30) % 10, epsilon="0.6")
    alone = reported_epsilon(run.plan.whole, Fraction(1, 100_000), "REPLACE_SPECIAL")
    assert 2 * alone < run.epsilon <= Fraction(6, 10)
    assert _taken(run) == 4
    (charge,) = [body for kind, body in _bodies(thrice) if kind == "charge"]
    assert charge["unit_records_max"] == 3


def test_a_record_that_is_there_too_often_is_refused(tmp_path: Path) -> None:
    """What is priced is bounded; who the records are may be named instead."""
    with pytest.raises(Malformed, match="data: has one record 65 times, and at most 64 are permitted: take it once"):
        _run(tmp_path / "book.sqlite", torch.zeros(65, dtype=torch.int64))
    names = [f"person {number}" for number in range(65)]
    assert _taken(_run(tmp_path / "book.sqlite", torch.zeros(65, dtype=torch.int64), identities=names)) == 4


def test_a_book_knows_its_records_in_one_way(tmp_path: Path) -> None:
    """By their numbers, or by who they are: the same records would have a budget each way."""
    named, numbered = tmp_path / "named.sqlite", tmp_path / "numbered.sqlite"
    names = [f"person {number}" for number in range(20)]
    assert _taken(_run(named, slice(0, 20), identities=names)) == 4
    assert _taken(_run(numbered, slice(0, 20))) == 4
    with (
        pytest.raises(Malformed, match=r"^identities: must be given: the records of"),
        _run(named, slice(0, 20)) as run,
    ):
        list(run)
    with (
        pytest.raises(Malformed, match=r"^identities: must not be given: the records of"),
        _run(numbered, slice(0, 20), identities=names) as run,
    ):
        list(run)


def test_records_of_an_earlier_form_of_book_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its partitions say neither way, and hold the bytes of numbers in the type that they had."""
    book = tmp_path / "book.sqlite"
    earlier = _run(book, slice(0, 20))
    raw = earlier._names.earlier  # noqa: SLF001 - as the program before wrote them
    monkeypatch.setattr(earlier, "_names", RecordNames("p", raw, raw, raw, 1))
    assert _taken(earlier) == 4
    with pytest.raises(LocalRefused), _run(book, slice(0, 40)) as run:
        list(run)
    # The others are new, and may be known in either way: such a book does not say how it knows its first records.
    names = [f"person {number}" for number in range(20)]
    assert _taken(_run(book, slice(20, 40), identities=names)) == 4
    assert _taken(_run(book, slice(20, 40))) == 4


def test_a_person_with_two_records_is_refused(tmp_path: Path) -> None:
    """Each record is clipped by itself, so the person would lose twice what the run is charged."""
    with pytest.raises(Malformed, match="identities: name one identity twice"):
        _run(tmp_path / "book.sqlite", slice(0, 20), identities=["one person"] * 20)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"budget": "three"}, "budget: 'three' is not a plain decimal"),
    ({"budget": 3}, 'budget: must be a number in quotes, as "0.5", not int'),
    ({"budget": "0"}, "budget: must be greater than 0"),
    ({"budget": "-1"}, "budget: '-1' is negative: must be positive"),
    ({"epsilon": "9"}, "epsilon: must be at most the budget of 2"),
    ({"delta": "0"}, "delta: must be greater than 0"),
    ({"delta": "2"}, "delta: must be less than 1"),
    ({"steps": 0}, "steps: must lie between 1 and"),
    ({"batch_size": 0}, "batch_size: must be at least 1"),
    ({"batch_size": -5}, "batch_size: must be at least 1"),
    ({"clipping_norm": 1.0}, 'clipping_norm: must be a number in quotes, as "0.5", not float'),
    ({"identities": ["one"]}, "identities: must be 40, one for each record"),
]


@pytest.mark.parametrize(("changes", "sentence"), WRONG)
def test_a_wrong_argument_is_named_and_makes_no_book(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    """As it was passed, with its rule; and before anything is written."""
    with pytest.raises(Malformed, match=f"^{sentence}"):
        _run(tmp_path / "book.sqlite", **changes)
    assert list(tmp_path.iterdir()) == []


def test_what_ran_is_posted_and_the_rest_returns(tmp_path: Path) -> None:
    """Nothing is charged before the first step; a loop that ends early posts its steps, one that breaks all begun."""
    book = tmp_path / "book.sqlite"
    run = _run(book)
    with run:
        pass
    assert [kind for kind, _ in _bodies(book)] == ["organisation"] * 3 + ["policy", "dataset", "contract"]
    with _run(book, steps=30) as run:
        assert next(iter(run)) == 1
    with pytest.raises(ZeroDivisionError), _run(book, slice(0, 20), epsilon="0.5", steps=30) as run:
        _ = next(iter(run)) / 0
    posted = [body["steps"] for kind, body in _bodies(book) if kind == "post"]
    assert posted == [1, 10]


def test_a_run_tells_what_its_numbers_mean(tmp_path: Path) -> None:
    """ε and budget, δ, unit, relation, rule, Level, and what is not given."""
    reported = str(_run(tmp_path / "book.sqlite"))
    for words in (
        "ε 1.6",
        "budget of ε 2",
        "δ 0.00001",
        "unit record",
        "rule renyi",
        "Level 1",
        "not given: other parties",
    ):
        assert words in reported


def test_keys_and_budget_are_the_book_s_own(spent: Path) -> None:
    """Readable by their owner alone; another budget, δ or a book without its keys is refused by name."""
    keys = spent.with_name(f"{spent.name}.keys")
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    with pytest.raises(Malformed, match=r"^budget: is 2 in "), _run(spent, budget="9"):
        pass
    with pytest.raises(Malformed, match=r"^delta: is 0\.00001 in "), _run(spent, delta="0.000001"):
        pass
    keys.rename(spent.with_name("away"))
    with pytest.raises(Malformed, match=r"^book: lacks .*keys: a book and its keys lie side by side"), _run(spent):
        pass
    spent.with_name("away").rename(keys)


def test_an_older_copy_of_the_book_is_not_opened(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The newest checkpoint is kept elsewhere; where none is, one line says so, as on another machine."""
    path, numbers = tmp_path / "book.sqlite", (parse_number("2", "budget"), parse_number("0.00001", "delta"))
    LocalBook(path, *numbers).close()
    older = copy(path, tmp_path / "older.sqlite")
    book = LocalBook(path, *numbers)
    book.partitions(RecordNames.of_identities(["one"], 1))
    book.close()
    newest = copy(path, tmp_path / "newest.sqlite")
    copy(older, path)
    with pytest.raises(BookUnusable, match=r"fewer than the 7 under the checkpoint kept at .*: it is an older copy"):
        LocalBook(path, *numbers)
    copy(newest, path)
    LocalBook(path, *numbers).close()
    assert not caplog.messages
    (kept,) = (state_folder() / "kept-checkpoints").glob("[!.]*")
    kept.unlink()
    LocalBook(path, *numbers).close()
    assert "this book of 7 entries is taken for the newest copy" in caplog.text


def test_a_process_that_dies_leaves_its_whole_charge_standing(tmp_path: Path) -> None:
    """SIGKILL in a step, before anything is posted: the next run finds the budget taken."""
    script = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from tests.epsilon_ledger.test_local import _run\n"
        "with _run(Path('book.sqlite')) as run:\n"
        "    for step in run:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PAGE.parents[1])},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    with pytest.raises(LocalRefused), _run(tmp_path / "book.sqlite") as run:
        list(run)


def test_the_page_s_code_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of its own; fifteen lines at most, and a released model's worth of steps."""
    monkeypatch.chdir(tmp_path)
    codes = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert [len([line for line in one.splitlines() if line]) <= 15 for one in codes] == [True, True]
    code, _ = codes
    names: dict[str, Any] = {}
    exec(compile(code, "local.md", "exec"), names)  # noqa: S102 - the page's own code
    assert names["step"] == 20
    assert isinstance(names["run"].plan, Plan)
    for line, code in commands(PAGE, "tests/epsilon_ledger/test_local.py"):
        done = CliRunner().invoke(assemble(), shlex.split(line)[1:])
        assert done.exit_code == code, done.output


def test_the_page_s_code_on_a_table_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty columns by the quick start's schema, in two files; the model is better than a guess."""
    monkeypatch.chdir(tmp_path)
    head, *rows = own_table(700).splitlines()
    for name, part in (("test.csv", rows[:100]), ("patients.csv", rows[100:])):
        Path(name).write_text("\n".join((head, *part, "")))
    (schema,) = (one for one in blocks(PAGE.with_name("quick_start.md")) if one.place == "own.toml")
    Path("schema.toml").write_text(schema.text)
    *_, code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "local.md", "exec"), names)  # noqa: S102 - the page's own code
    right = names["model"]((names["public"] - names["mean"]) / names["deviation"]).argmax(1) == names["answers"]
    assert float(right.float().mean()) > 0.8
    with pytest.raises(Malformed, match="names the column Case no, which the table lacks"):
        read_table(_cut(Path("test.csv")), "schema.toml")


def _cut(path: Path) -> Path:
    """The table without its first column."""
    cut = path.with_name("cut.csv")
    cut.write_text("\n".join(line.partition(",")[2] for line in path.read_text().splitlines()))
    return cut


def _bodies(book: Path) -> list[tuple[str, Any]]:
    opened = LocalBook(book, parse_number("2", "budget"), parse_number("0.00001", "delta"))
    try:
        with opened._book.read() as facts:  # noqa: SLF001 - what is recorded
            entries = [Entry.parse(facts.entry(index)) for index in range(facts.size)]
    finally:
        opened.close()
    return [(one.kind, one.request) for one in entries]
