"""Preprocessing that looks at the data is public, charged or refused."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from api.demo import digits
from client.keys.signer import load_private
from client.service.seen_checkpoint import SeenCheckpoint, SeenCheckpointError
from ledger.log.checkpoint import sign
from ledger.mechanisms.plan import Plan
from ledger.verifier import Checkpoint
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.live_service import ORIGIN, Place, open_place
from trainer_adapter.job.category_inputs import model_width
from trainer_adapter.job.preprocessing import Charged, read_preprocessing
from trainer_adapter.training.attach import attach
from trainer_adapter.training.preprocessing_constants import PreparedConstants
from trainer_adapter.training.run_options import Options
from trainer_adapter.training.training_records import read_records

HERE = Path("jobs")
PUBLIC = {"kind": "normalise", "mean": "0.1307", "deviation": ["0.3081"], "public": "published with the data set"}
CODES = {"kind": "one_hot", "column": 1, "values": [7, -2], "public": "a code book"}
MEANS = Plan(Fraction(1), Fraction(40), Fraction(4), 1, digits.RECORDS)
"""One step over all records: their noisy mean."""


def test_public_constants_are_read_exactly() -> None:
    """As they were written, negative ones too; nothing said is nothing done."""
    weights = {"kind": "class_weights", "weights": ["1", "2.5"], "public": "a published table"}
    found = read_preprocessing([{**PUBLIC, "mean": "-0.5"}, weights], HERE)
    assert [dict(one.values) for one in found] == [
        {"mean": (Fraction(-1, 2),), "deviation": (Fraction(3081, 10_000),)},
        {"weights": (Fraction(1), Fraction(5, 2))},
    ]
    assert [one.source for one in found] == ["published with the data set", "a published table"]
    assert read_preprocessing([], HERE) == ()


def test_a_charged_source_names_its_run_and_its_model() -> None:
    """Paths are relative to the file."""
    (found,) = read_preprocessing([{"kind": "normalise", "charge": "run-1", "model": "m.safetensors"}], HERE)
    assert found.source == Charged("run-1", HERE / "m.safetensors")


REFUSED = [
    ({name: PUBLIC[name] for name in ("kind", "mean", "deviation")}, "preprocessing.0"),
    ({**PUBLIC, "public": "  "}, "preprocessing.0.public"),
    ({**PUBLIC, "charge": "run-1"}, "preprocessing.0"),
    ({**PUBLIC, "mean": "fit"}, "preprocessing.0.mean"),
    # A file of the data, or what its provider computed of it, is no source of constants.
    ({**PUBLIC, "mean": "2026/secret/report.json"}, "preprocessing.0.mean"),
    ({"kind": "normalise", "public": "2026/secret/report.json"}, "preprocessing.0.public"),
    ({"kind": "normalise", "model": "2026/share/records.sealed"}, "preprocessing.0"),
    ({**PUBLIC, "mean": []}, "preprocessing.0.mean"),
    ({**PUBLIC, "mean": 0.5}, "preprocessing.0.mean"),
    ({**PUBLIC, "fit": True}, "preprocessing.0.fit"),
    ({**PUBLIC, "kind": "whiten"}, "preprocessing.0.kind"),
    ({"kind": "normalise", "charge": "run-1"}, "preprocessing.0.model"),
    ({"kind": "normalise", "charge": "run-1", "model": "m", "mean": "0"}, "preprocessing.0.mean"),
    ("normalise", "preprocessing.0.kind"),
    ({**CODES, "values": []}, "preprocessing.0.values"),
    ({**CODES, "values": [1, 1]}, "preprocessing.0.values"),
    ({**CODES, "values": [1 << 25]}, "preprocessing.0.values"),
    ({**CODES, "values": ["1"]}, "preprocessing.0.values"),
    ({**CODES, "column": -1}, "preprocessing.0.column"),
    ({**CODES, "public": " "}, "preprocessing.0.public"),
    ({**CODES, "statistic": "strains"}, "preprocessing.0.values"),
    ({name: one for name, one in CODES.items() if name != "public"}, "preprocessing.0"),
    ({"kind": "one_hot", "column": 0, "charge": "run-1", "model": "m"}, "preprocessing.0"),
]


@pytest.mark.parametrize(("value", "field"), REFUSED)
def test_what_names_no_source_is_refused(value: object, field: str) -> None:
    """By the field and the rule."""
    with pytest.raises(Malformed) as caught:
        read_preprocessing([value], HERE)
    assert caught.value.field == field


def test_constants_work_on_one_record_by_itself() -> None:
    """Normalised, kept within a vocabulary, weighed by class; the wrong kind of inputs is refused."""

    def prepared(kind: str, **constants: list[float]) -> PreparedConstants:
        return PreparedConstants(((kind, {name: torch.tensor(values) for name, values in constants.items()}),))

    normal = prepared("normalise", mean=[1.0, 2.0], deviation=[2.0, 4.0])
    assert torch.equal(normal.inputs(torch.tensor([[3.0, 10.0]])), torch.tensor([[1.0, 2.0]]))
    words = prepared("vocabulary", size=[100.0])
    assert words.inputs(torch.tensor([[5, 99, 100, -1]])).tolist() == [[5, 99, 0, 0]]
    weighed = prepared("class_weights", weights=[1.0, 3.0]).loss(cross_entropy)
    scores, label = torch.tensor([[0.2, 0.9]]), torch.tensor([1])
    assert torch.isclose(weighed(scores, label), 3 * cross_entropy(scores, label))
    with pytest.raises(Malformed, match="whole numbers"):
        normal.inputs(torch.tensor([[1, 2]]))
    with pytest.raises(Malformed, match="whole numbers"):
        words.inputs(torch.tensor([[1.0]]))


def test_categories_become_inputs_of_their_own() -> None:
    """Of the numbers as they were given, behind the others as they are scaled; what is none of them is zeros alone."""
    known = read_preprocessing(
        [{**PUBLIC, "mean": ["1", "0", "0"], "deviation": ["2", "9", "1"]}, CODES, {**CODES, "column": 2}], HERE
    )
    values = torch.tensor([7.0, -2.0])
    constants = PreparedConstants(
        (
            ("normalise", {"mean": torch.tensor([1.0, 0.0, 0.0]), "deviation": torch.tensor([2.0, 9.0, 1.0])}),
            *(("one_hot", {"column": torch.tensor(place), "values": values}) for place in (1, 2)),
        )
    )
    given = torch.tensor([[3.0, 7.0, 0.5], [5.0, -2.0, torch.nan], [1.0, 8.0, 7.0]])
    seen = constants.inputs(given)
    assert seen.tolist() == [[1, 1, 0, 0, 0], [2, 0, 1, 0, 0], [0, 0, 0, 1, 0]]
    assert model_width(3, known, MEANS) == seen.shape[1]
    for wrong, words in (
        (given[:, :2], "takes column 2, and records have 2"),
        (given[0], "one row of numbers a record"),
    ):
        with pytest.raises(Malformed, match=words):
            PreparedConstants(constants.items[1:]).inputs(wrong)
    with pytest.raises(Malformed, match=r"preprocessing\.1\.column: is 1, and the inputs have the columns 0 to 0"):
        model_width(1, known, MEANS)
    with pytest.raises(Malformed, match="which another item takes"):
        model_width(3, read_preprocessing([CODES, CODES], HERE), MEANS)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One service for the file; each test has a run of its own."""
    with open_place(tmp_path_factory.mktemp("preprocessing") / "place") as found:
        yield found


class Means(nn.Module):
    """Statistics as a model: a mean that a step of DP-SGD moves to the records' noisy mean, and a public deviation."""

    def __init__(self) -> None:
        """Both start at what is public."""
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(64))
        self.register_buffer("deviation", torch.full((64,), 0.25))

    def forward(self, images: Tensor) -> Tensor:
        """How far each image is from the mean, shape (records, 64)."""
        return self.mean - images


def _half_square(outputs: Tensor, targets: Tensor) -> Tensor:
    del targets
    return outputs.square().sum() / 2


def _means(place: Place, name: str) -> Path:
    model = Means()
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    assignment = place.assignment(name, MEANS)
    with attach(model, optimiser, _half_square, assignment, Options(service=place.service)) as run:
        for _ in run:
            pass
    assert run.release()
    return assignment.output / "model.safetensors"


def test_charged_statistics(place: Place) -> None:
    """A mean from a run of its own, charged and released, is near the true one, and another run may normalise by it."""
    path = _means(place, "means")
    mean = load_file(path)["mean"]
    truth = read_records(digits.archive(digits.FIRST), "first")[0].reshape(-1, 64).mean(dim=0)
    assert float((mean - truth).norm()) < 4 * 40 * 4 / digits.RECORDS * 8
    extra = f'\n[[train.preprocessing]]\nkind = "normalise"\ncharge = "means"\nmodel = "{path}"\n'
    model = nn.Linear(64, 10)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    options = Options(service=place.service)
    with attach(model, optimiser, cross_entropy, place.assignment("by-means", extra=extra), options) as run:
        for _ in run:
            break
    shown = run.constants.inputs(torch.full((1, 64), 0.5))
    assert torch.allclose(shown, (0.5 - mean) / 0.25)


def test_statistics_that_no_release_proves_are_refused(place: Place) -> None:
    """Another file, another charge, or no receipt: refused before anything is charged."""
    path = _means(place, "proven")
    forged = path.with_name("forged.safetensors")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    forged.write_bytes(bytes(data))
    forged.with_suffix(".receipt").write_bytes(path.with_suffix(".receipt").read_bytes())
    bare = path.with_name("bare.safetensors")
    bare.write_bytes(path.read_bytes())
    size = len(place.kinds())
    for charge, model in (("proven", forged), ("another", path), ("proven", bare)):
        extra = f'\n[[train.preprocessing]]\nkind = "normalise"\ncharge = "{charge}"\nmodel = "{model}"\n'
        layer = nn.Linear(64, 10)
        optimiser = torch.optim.SGD(layer.parameters(), lr=0.1)
        options = Options(service=place.service)
        with (
            pytest.raises((Malformed, OSError), match=r"is not what charge|bare\.receipt"),
            attach(layer, optimiser, cross_entropy, place.assignment("unproven", extra=extra), options) as run,
        ):
            next(iter(run))
    assert len(place.kinds()) == size


def test_statistics_of_another_history_are_refused(place: Place) -> None:
    """The log's key signed the release and a longer log, which this user has seen: the service was set back."""
    path = _means(place, "set-back")
    private = load_private(place.folder / "log.pem")
    seen = SeenCheckpoint(place.address.log, "").path
    longer = Checkpoint(ORIGIN, len(place.kinds()) + 1, bytes(32))
    seen.parent.mkdir(parents=True, exist_ok=True)
    seen.write_text(sign(longer, private), encoding="utf-8")
    known = place.assignment(
        "by-another", extra=f'\n[[train.preprocessing]]\nkind = "normalise"\ncharge = "set-back"\nmodel = "{path}"\n'
    )
    with pytest.raises(SeenCheckpointError, match="does not prove that its log goes on from"):
        PreparedConstants.load(known.preprocessing, place.service, known.log)
    # A receipt of that other history is refused by a service that is the newest, too.
    seen.unlink()
    receipt = path.with_suffix(".receipt")
    entry, _, _ = receipt.read_text(encoding="utf-8").partition("\n\n")
    other = Checkpoint(ORIGIN, 5, bytes(32))
    receipt.write_text(f"{entry}\n\n{sign(other, private)}", encoding="utf-8")
    with pytest.raises(SeenCheckpointError, match="does not prove that its log goes on from"):
        PreparedConstants.load(known.preprocessing, place.service, known.log)
