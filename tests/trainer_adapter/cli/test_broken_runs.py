"""Runs that break: before the charge nothing is charged, after it nothing is given back or told of a record."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.torch import load_file
from typer.testing import CliRunner

from api.demo import digits
from client.dataset_files.sealed_records import RecordLayout, write_sealed
from client.keys.data_encryption import encrypt
from client.keys.signer import Signer
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.live_service import PLAN, Place, open_place
from trainer_adapter.cli.main import app
from trainer_adapter.cli.train import train_job
from trainer_adapter.job.job_spec import Job
from trainer_adapter.job.step_log import steps_begun
from trainer_adapter.training.model_run import ModelRun

Array: TypeAlias = NDArray[Any]
ONES = np.ones((digits.RECORDS, 64), np.float32)
ZEROS = np.zeros(digits.RECORDS, np.int64)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One service for the file; each test has a run of its own."""
    with open_place(tmp_path_factory.mktemp("broken") / "place") as found:
        yield found


@pytest.fixture
def place(shared: Place) -> Iterator[Place]:
    """The service, with its files put back as they were."""
    files = [shared.sealed, shared.folder / "data" / "test.npz"]
    kept = [file.read_bytes() for file in files]
    yield shared
    for file, data in zip(files, kept, strict=True):
        file.write_bytes(data)


def _archive(inputs: Array, targets: Array, *, compressed: bool = False) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, inputs=inputs, targets=targets)
    return file.getvalue()


def _seal(place: Place, archive: bytes) -> None:
    place.sealed.write_bytes(encrypt(place.data_key, place.ref, archive))


def test_a_run_that_breaks_in_a_block_posts_the_whole_block(place: Place) -> None:
    """Three steps of noise were used: ten were begun, ten are posted, and no model leaves."""

    def stop(_: ModelRun, step: int) -> None:
        if step == 3:
            raise KeyboardInterrupt

    job = Job.load(place.job("cut"))
    with pytest.raises(KeyboardInterrupt):
        train_job(job, place.service, lambda _: None, on_step=stop)
    charge = place.charge("cut")
    assert charge is not None
    assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, 10)
    assert steps_begun(job.output / "steps.log", "cut", PLAN) == 10
    assert place.kinds()[-1] == ("post", "posted")
    assert [file.name for file in job.output.iterdir()] == ["steps.log"]


def test_the_longest_id_that_is_read_can_be_posted(place: Place) -> None:
    """A charge whose key, post or model could not be asked for would stand in full for nothing."""
    name = "r" * 128
    report = place.run(place.job(name))
    charge = place.charge(name)
    assert charge is not None
    assert (charge.steps_posted, len(report.model)) == (PLAN.steps, 64)


def test_a_label_of_no_class_neither_stops_a_run_nor_is_reported_nor_learnt(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    """Such records count as nothing: were they taken for class 0, white images would score far above the noise."""
    labels = np.array([4747, -5, 10, -100], np.int64)[np.arange(digits.RECORDS) % 4]
    _seal(place, _archive(ONES, labels))
    said: list[str] = []
    job = Job.load(place.job("odd"))
    report = train_job(job, place.service, said.append)
    assert report.steps == PLAN.steps
    assert capfd.readouterr() == ("", "")
    assert not any("4747" in line or "label" in line for line in said)
    weights = load_file(job.output / "model.safetensors")
    scores = weights["1.weight"].sum(dim=1) * 0.7 + weights["1.bias"]
    assert scores[0] - scores[1:].mean() < 15


UNFIT: dict[str, Callable[[], bytes]] = {
    "narrow": lambda: _archive(ONES[:, :63], ZEROS),
    "words": lambda: _archive(np.full((digits.RECORDS, 64), "Mrs Rao, 47"), ZEROS),
    "fractions": lambda: _archive(ONES, np.full(digits.RECORDS, 4.7)),
    "fewer": lambda: _archive(ONES, ZEROS[:-1]),
}


@pytest.mark.parametrize("kind", UNFIT)
def test_data_that_open_and_do_not_fit(place: Place, kind: str) -> None:
    """Refused by what they all are, which one of them may have made it: none is quoted, the charge stands in full."""
    _seal(place, UNFIT[kind]())
    with pytest.raises(Malformed) as caught:
        place.run(place.job(kind))
    assert caught.value.field == place.ref
    assert "Rao" not in str(caught.value)
    assert "47" not in str(caught.value)
    charge = place.charge(kind)
    assert charge is not None
    assert charge.state is ChargeState.PENDING
    assert place.kinds()[-2:] == [("charge", "pending"), ("key_release", "permitted")]
    assert not list((place.folder / "runs" / kind).iterdir())


def _seal_described(place: Place, inputs: Array, targets: Array) -> None:
    """Sealed records, whose description has their types and shapes."""
    rows = np.zeros(len(inputs), [("inputs", inputs.dtype, inputs.shape[1:]), ("targets", targets.dtype)])
    rows["inputs"], rows["targets"] = inputs, targets
    with place.sealed.open("wb") as file:
        write_sealed(file, place.data_key, place.ref, RecordLayout(rows.dtype), [rows])


MISFITS: dict[str, tuple[Array, Array, str]] = {
    "truths": (ONES, ZEROS > 0, "must hold numbers as inputs and as targets"),
    "slim": (ONES[:, :63], ZEROS, "one target for each row of 64 inputs"),
    "parts": (ONES, ZEROS + 0.5, "integers as targets"),
}


@pytest.mark.parametrize("kind", MISFITS)
def test_records_whose_described_form_does_not_fit(place: Place, kind: str) -> None:
    """No record made it what it is, so the end shows none: the first block is charged, and the rest returns."""
    inputs, targets, rule = MISFITS[kind]
    _seal_described(place, inputs, targets)
    with pytest.raises(Malformed, match=rule):
        place.run(place.job(kind))
    charge = place.charge(kind)
    assert charge is not None
    assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, 10)
    assert not (place.folder / "runs" / kind / "model.safetensors").exists()


def test_a_run_that_is_resumed_waits_for_records_that_fit(place: Place) -> None:
    """Its charge stays, and the run goes on with the file that fits."""
    fits, path = place.sealed.read_bytes(), place.job("refitted")
    path.write_text(path.read_text() + '\n[train.resume]\nkey = "../keys/refitted.room"\nevery_s = 0\n')
    job = Job.load(path)
    _seal_described(place, ONES, ZEROS > 0)
    with pytest.raises(Malformed, match="must hold numbers"):
        train_job(job, place.service, lambda _: None)
    charge = place.charge("refitted")
    assert charge is not None
    assert charge.state is ChargeState.PENDING
    place.sealed.write_bytes(fits)
    assert train_job(job, place.service, lambda _: None, resume=True).steps == PLAN.steps


def _at(archive: bytes, mark: bytes, offset: int, value: int) -> bytes:
    """The archive with one byte changed in its first ``mark``."""
    place = archive.index(mark) + offset
    return archive[:place] + bytes([value]) + archive[place + 1 :]


def _header(text: bytes) -> bytes:
    """An archive whose arrays have a NumPy header of this text."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as zipped:
        for name in ("inputs.npy", "targets.npy"):
            zipped.writestr(name, b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text)
    return file.getvalue()


PACKED = _archive(ONES[:9], ZEROS[:9], compressed=True)
TESTS: dict[str, tuple[bytes, str]] = {
    "none": (b"", "is not a NumPy archive"),
    "one-array": (ONES.tobytes(), "is not a NumPy archive"),
    "cut": (PACKED[:-9], "is not a NumPy archive"),
    "deflate": (_at(PACKED, b"inputs.npy", 40, 0xFF), "is not a NumPy archive"),
    "method": (_at(PACKED, b"PK\x01\x02", 10, 77), "is not a NumPy archive"),
    "encrypted": (_at(PACKED, b"PK\x01\x02", 8, 1), "is not a NumPy archive"),
    "header": (_header(b"{'descr': ("), "is not a NumPy archive"),
    "objects": (_archive(ONES, np.array([{}] * digits.RECORDS)), "is not a NumPy archive"),
    "narrow": (_archive(ONES[:, :63], ZEROS), "one target for each row of 64 inputs"),
    "fewer": (_archive(ONES, ZEROS[:-1]), "one target for each row of inputs"),
    "fractions": (_archive(ONES, np.full(digits.RECORDS, 4.7)), "integers as targets"),
    "empty": (_archive(ONES[:0], ZEROS[:0]), "holds no record"),
}


@pytest.mark.parametrize("kind", TESTS)
def test_a_public_test_set_that_is_none(place: Place, kind: str) -> None:
    """However it is damaged: one sentence that names the test set, before anything is charged or made."""
    size = len(place.kinds())
    data, says = TESTS[kind]
    (place.folder / "data" / "test.npz").write_bytes(data)
    with pytest.raises(Malformed, match=f"^test: .*{says}"):
        place.run(place.job("untested"))
    assert len(place.kinds()) == size
    assert not (place.folder / "runs" / "untested").exists()


def _open_to_all(path: Path) -> None:
    Signer.generate().save(path)
    path.chmod(0o644)


def _no_key(path: Path) -> None:
    path.write_bytes(b"not a key")
    path.chmod(0o600)


@pytest.mark.parametrize("whose", ["bank", "attester"])
@pytest.mark.parametrize("make", [_open_to_all, _no_key, lambda _: None], ids=["open", "none", "missing"])
def test_a_key_that_cannot_be_used_costs_nothing(
    place: Place, tmp_path: Path, whose: str, make: Callable[[Path], None]
) -> None:
    """The consumer's or the attester's: told with its path before the charge, and no folder is left behind."""
    size = len(place.kinds())
    path = tmp_path / "other.pem"
    make(path)
    job = place.job("keyless")
    job.write_text(job.read_text().replace(f"../keys/{whose}.pem", str(path)))
    with pytest.raises((Malformed, OSError), match=r"other\.pem"):
        place.run(job)
    assert len(place.kinds()) == size
    assert not (place.folder / "runs" / "keyless").exists()


def test_a_refusal_is_told_to_programs_and_to_people(place: Place) -> None:
    """With its code, its reasons and the entry that records it; no step, no key, no log of steps."""
    loud = Plan(PLAN.sampling_probability, PLAN.clipping_norm, PLAN.clipping_norm, 20, PLAN.batch_size_expected)
    size = len(place.kinds())
    done = CliRunner().invoke(app, ["train", str(place.job("loud", loud)), "--json"])
    *stages, reported = [json.loads(line) for line in done.stdout.splitlines()]
    assert {one["event"] for one in stages} == {"stage"}
    assert (reported["event"], reported["code"], reported["index"]) == ("refused", "policy_denied", size)
    assert {"run_above_contract", "run_above_policy"} <= {reason["code"] for reason in reported["reasons"]}
    assert done.exit_code not in {0, 1, 2}
    assert done.stderr.startswith("policy_denied: ")
    assert place.kinds()[size:] == [("charge", "policy_denied")]
    assert not list((place.folder / "runs" / "loud").iterdir())
