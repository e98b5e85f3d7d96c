"""Writers killed by the kernel, at any moment: what was acknowledged is there, and what is there verifies."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final, cast

import pytest

from ledger.replay import verify_book
from tests.book.world import LOG, SMALL, World, no_step, open_world
from tests.book.writer_process import CHARGES_MAX

ROOT: Final = Path(__file__).resolve().parents[2]
DICE: Final = random.Random(20_260_901)  # noqa: S311 - moments to die at
DEATHS: Final = [
    *({"acknowledged": DICE.randrange(1, 25)} for _ in range(5)),
    *({"statement": DICE.randrange(1, 200)} for _ in range(5)),
    *({"commit": DICE.randrange(1, 12)} for _ in range(2)),
]


class Writers:
    """The process that forks writers."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def run(self, folder: Path, prefix: str, die: dict[str, int]) -> tuple[dict[str, list[str]], int]:
        """One writer from fork to end: what it said of each charge, and its exit status."""
        stdin, stdout = cast("IO[str]", self.process.stdin), cast("IO[str]", self.process.stdout)
        stdin.write(json.dumps({"die": die, "folder": str(folder), "prefix": prefix}) + "\n")
        stdin.flush()
        pid, said = 0, dict[str, list[str]](ack=[], stopped=[])
        for line in stdout:
            word, name, *_ = line.split()
            if word == "pid":
                pid = int(name)
            elif word == "ended":
                return said, int(name)
            else:
                assert line.split()[2:] in ([], ["pending"]), line
                said[word].append(name)
            if word == "ack" and len(said["ack"]) == die.get("acknowledged"):
                os.kill(pid, signal.SIGKILL)
        raise AssertionError("the process that forks writers ended")


@pytest.fixture(scope="module")
def writers() -> Iterator[Writers]:
    """One for all kills, since it loads for seconds."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.book.writer_process"],
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Writers(process)
        cast("IO[str]", process.stdin).close()
        assert process.wait(60) == 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A book that nobody has open."""
    with open_world(tmp_path):
        pass
    return tmp_path


def _answers(folder: Path, names: list[str]) -> list[Any]:
    """Open the book, send these charges again, and verify it while it is open."""
    world = World(folder)
    try:
        found = verify_book(world.url, LOG, no_step)
        with world.book.read() as facts:
            assert found.charges == len(facts.charges) == facts.size - 10
        return world.submit(*(world.charge(name, run=SMALL) for name in names))
    finally:
        world.book.close()


def test_no_acknowledged_charge_is_lost(writers: Writers, folder: Path) -> None:
    """Writers die one after another on one book; all that any of them acknowledged is there after each."""
    acknowledged: list[str] = []
    for place, die in enumerate(DEATHS):
        said, status = writers.run(folder, f"k{place}", die)
        assert os.WTERMSIG(status) == signal.SIGKILL, (die, status)
        acknowledged += said["ack"]
        assert all(one.repeated and one.code.word == "pending" for one in _answers(folder, acknowledged))
    assert len(acknowledged) > 40


def test_what_was_committed_and_not_acknowledged_gets_its_answer(writers: Writers, folder: Path) -> None:
    """The writer dies between its first commit and the answer: sent again, the charge is not made twice."""
    said, status = writers.run(folder, "k", {"commit": 1})
    assert (said["ack"], os.WTERMSIG(status)) == ([], signal.SIGKILL)
    answers = _answers(folder, [f"k-{number}" for number in range(4)])
    assert [one.code.word for one in answers] == ["pending"] * 4
    assert any(one.repeated for one in answers)
    assert {one.repeated for one in _answers(folder, [f"k-{number}" for number in range(4)])} == {True}


def test_a_disk_that_takes_no_more_stops_the_book(writers: Writers, folder: Path) -> None:
    """A write fails in the file system: nobody is told yes, later callers are told too, and reopening answers."""
    said, status = writers.run(folder, "k", {"bytes": 600_000})
    assert status == 0
    assert said["ack"]
    assert said["stopped"]
    assert len(said["ack"]) + len(said["stopped"]) == CHARGES_MAX
    assert all(one.repeated for one in _answers(folder, said["ack"]))
    again = _answers(folder, said["stopped"][:20])
    assert {one.code.word for one in again} == {"pending"}
