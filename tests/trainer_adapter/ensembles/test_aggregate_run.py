"""Sample and aggregate: any program on disjoint chunks; what one of them does is one chunk's affair."""

from __future__ import annotations

import fcntl
import itertools
import tempfile
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray

from api.demo import digits
from api.demo.sealed_archive import sealed_archive
from ledger.domain.outcomes import ChargeState
from ledger.wire.malformed import Malformed
from tests.documentation.fenced_blocks import ROOT, blocks
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.ensembles.aggregate_run import aggregate
from trainer_adapter.ensembles.black_box import estimates, read_source
from trainer_adapter.job.estimator import Estimator
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.training.training_records import read_records

JOB = blocks(ROOT / "docs" / "answers.md")[-1].text
SOURCE = """
import os, sys, time
import numpy as np

def estimate(inputs, targets):
    print("what is printed is no answer")
    return targets.mean(), inputs.mean()

def odd(inputs, targets):
    first = int(targets[0])
    if first == 1:
        raise ValueError("a record")
    if first == 2:
        time.sleep(60)
    if first == 3:
        os._exit(0)
    return {4: "text", 5: [1, 2, 3], 6: np.inf, 7: []}.get(first, 0.5 * first)
"""


def _chunk(first: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    return np.zeros((3, 2), dtype=np.float32), np.array([first, 0, 0])


def test_whatever_a_program_does_is_one_chunks_affair(tmp_path: Path) -> None:
    """It raises, hangs, ends, or says something else: its chunk has no number, and the others theirs."""
    path = tmp_path / "estimate.py"
    path.write_text(SOURCE)
    known = Estimator(path, "odd", 5_000)
    waited: list[float] = []
    found = estimates(known, read_source(known), [_chunk(one) for one in range(9)], 1, waited.append)
    assert found[[0, 6, 8], 0].tolist() == [0, np.inf, 4]
    assert np.isnan(found[[1, 2, 3, 4, 5, 7], 0]).all()
    # Each waits for what is left of its slot: the one that was late was killed and cleared away before its end.
    assert len(waited) == 9
    assert 0 < waited[2] < 0.5
    assert all(0 < one < 5 for one in waited)


def test_a_slot_begins_before_its_process(tmp_path: Path) -> None:
    """What it takes to write a chunk down is the chunk's own: no process gets more than its slot has left."""
    path, waited = tmp_path / "estimate.py", list[float]()
    path.write_text(SOURCE)
    known, begun = Estimator(path, "odd", 5_000), itertools.chain([0.0], itertools.repeat(4.6))
    found = estimates(known, read_source(known), [_chunk(0)], 1, waited.append, begun.__next__)
    assert np.isnan(found).all()
    assert waited == [pytest.approx(0.4)]


HOLDING: Final = """
import os, subprocess, sys

def held(inputs, targets):
    # A child in another session, with every pipe that this process has, that ends when it gets the lock.
    waits = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_SH)"
    pipes = [one for one in range(64) if os.path.exists(f"/proc/self/fd/{one}")]
    if os.fork():
        return [1.0]
    os.setsid()
    for one in pipes:
        os.set_inheritable(one, True)
    os.execv(sys.executable, [sys.executable, "-c", waits, "{lock}"])

def replaced(inputs, targets):
    # What is to be cleared away is no folder any more.
    here = os.getcwd()
    os.rmdir(here)
    open(here, "w").close()
    return [1.0]

def flooding(inputs, targets):
    os.write(1, bytes(1 << 20))
    writes = [one for one in range(2, 64) if os.path.exists(f"/proc/self/fd/{one}")]
    while True:
        for one in writes:
            try:
                os.write(one, b"1" * (1 << 20))
            except OSError:
                pass
"""


@pytest.mark.parametrize(("function", "number"), [("held", 1.0), ("flooding", np.nan), ("replaced", 1.0)])
def test_no_program_holds_the_room_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, number: float
) -> None:
    """By a process that it leaves behind with its pipes, by output without end, or by a folder that is none any more.

    The next chunk has its slot.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lock, path, waited = tmp_path / "lock", tmp_path / "estimate.py", list[float]()
    path.write_text(HOLDING.replace("{lock}", str(lock)))
    known = Estimator(path, function, 600_000)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        found = estimates(known, read_source(known), [_chunk(one) for one in range(2)], 1, waited.append)
    assert np.array_equal(found[:, 0], [number, number], equal_nan=True)
    # Neither waited for the end of its slot.
    assert all(waited)


def test_an_estimate_is_charged_and_leaves_with_its_post(tmp_path: Path) -> None:
    """The page's job, on the digits: near the truth, one step, and the file is the charge's pipeline."""
    with open_place(tmp_path / "place", mechanisms=["gdp", "poisson_gaussian"]) as place:
        path = place.assignment_file("aggregated")
        path.write_text(path.read_text().split("[train.plan]")[0] + JOB)
        (path.parent / "estimate.py").write_text(SOURCE)
        job = Assignment.load(path)
        report = aggregate(job, place.service, lambda _: None, lambda _: None)
        charge = place.charge("aggregated")
        assert charge is not None
        assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, 1)
        assert charge.pipeline == place.service.charge("aggregated").get("pipeline", charge.pipeline)
        inputs, targets = read_records(digits.archive(digits.FIRST), "first")
        truth = float(targets.double().mean()), float(inputs.double().mean())
        values = report.answer["values"]
        assert isinstance(values, list)
        # The noise of each is 4·√82/12 = 3.
        assert all(abs(float(str(one)) - right) < 18 for one, right in zip(values, truth, strict=True))
        with pytest.raises(Malformed, match="must be of one question"):
            _again(place.assignment_file("two"), JOB.replace("questions = 1", "questions = 2"), place)
        with pytest.raises(Malformed, match=r"train.estimator: is missing"):
            _again(place.assignment_file("none"), JOB.split("[train.estimator]")[0], place)
        with pytest.raises(Malformed, match=r"must be FILE\.py:FUNCTION"):
            _again(place.assignment_file("bad"), JOB.replace("estimate.py:estimate", "estimate"), place)
        _check_declared(place)
        (path.parent / "estimate.py").write_text("def estimate(:")
        with pytest.raises(Malformed, match="is no Python"):
            _again(place.assignment_file("syntax"), JOB, place)
        assert place.charge("syntax") is None


def _check_declared(place: Place) -> None:
    """Records that are not as declared end the query before a chunk is made, and it is charged."""
    place.sealed.write_bytes(sealed_archive(digits.archive(digits.FIRST), place.data_key, place.ref, 9))
    with pytest.raises(Malformed, match="the target is none of its declared categories"):
        _again(place.assignment_file("broken"), JOB, place)
    charge = place.charge("broken")
    assert charge is not None
    assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, 1)


def _again(path: Path, text: str, place: Place) -> None:
    path.write_text(path.read_text().split("[train.plan]")[0] + text)
    aggregate(Assignment.load(path), place.service, lambda _: None, lambda _: None)
