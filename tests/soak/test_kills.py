"""A writer killed again and again: nothing acknowledged is lost, nothing else is half there, the sums hold.

The kernel keeps what a killed process has written, so this proves the order of commit and answer and that a
transaction is whole; that a commit also outlives a power cut rests on ``synchronous=FULL`` and on the disk.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import IO, Final, cast

import pytest

from ledger.entries import Entry
from ledger.registry import GLOBAL, holder_of
from ledger.replay import verify_book
from tests.book.world import LOG, no_step, open_world
from tests.soak.writer import ACKNOWLEDGED, GROUP_MAX, THREADS

ROOT: Final = Path(__file__).resolve().parents[2]
SEED: Final = "EPSILON_SOAK_SEED"
BOOKS, ROUNDS = 20, 10
MOMENT_MAX: Final = 0.25
"""Seconds after the fork within which a writer is killed; opening the book takes the first of them."""
TICKS_MAX: Final = 3_000
Rows = list[tuple[str, int, str]]
"""Id, index and outcome."""


class Writers:
    """The process that forks writers."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._stdin, self._stdout = cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)

    def kill_one(self, folder: Path, prefix: str, dice: random.Random) -> str:
        """Let one writer live for a while, by the clock or by its own count; how it died, in words."""
        instructions = dice.choice((0, dice.randint(1, TICKS_MAX)))
        moment = dice.uniform(0, MOMENT_MAX)
        job = {"folder": str(folder), "instructions": instructions, "prefix": prefix, "seed": dice.getrandbits(32)}
        self._stdin.write(json.dumps(job) + "\n")
        self._stdin.flush()
        pid = self._next("pid")
        timer = Timer(moment, os.kill, (pid, signal.SIGKILL))
        if not instructions:
            timer.start()
        status = self._next("ended")
        timer.cancel()
        how = f"{prefix}: killed at " + (f"tick {instructions}" if instructions else f"{moment:.3f} s")
        assert status == signal.SIGKILL, f"{how}: ended with {status}"
        return how

    def _next(self, word: str) -> int:
        found, number = self._stdout.readline().split()
        assert found == word
        return int(number)


@pytest.fixture(scope="module")
def writers() -> Iterator[Writers]:
    """One for all kills, since it loads for seconds."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.soak.writer"],
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Writers(process)
        cast("IO[str]", process.stdin).close()
        assert process.wait(60) == 0


@dataclass
class Killed:
    """A book whose writers are killed, and what was seen of it after each."""

    folder: Path
    recorded: Rows = field(default_factory=list)
    acknowledged: Rows = field(default_factory=list)

    def look(self, prefix: str) -> None:
        """Check the book as the last writer left it."""
        path = self.folder / "book.sqlite"
        found = verify_book(f"sqlite:///{path}", LOG, no_step)
        with closing(sqlite3.connect(path)) as connection:
            recorded = [_row(*row) for row in connection.execute("SELECT position, data FROM entry ORDER BY position")]
            charges = connection.execute("SELECT author, state, steps, steps_posted, prices FROM charge").fetchall()
            accounts = connection.execute(
                "SELECT partition, holder, coordinate, posted, pending FROM account"
            ).fetchall()
        acknowledged = _acknowledged(self.folder)
        assert found.entries == len(recorded)
        assert recorded[: len(self.recorded)] == self.recorded, "what was recorded stays"
        assert acknowledged[: len(self.acknowledged)] == self.acknowledged
        assert set(acknowledged) <= set(recorded), "what was acknowledged is recorded, in its place"
        new = set(recorded[len(self.recorded) :])
        assert all(prefix in name for name, _, _ in new), "only the last writer wrote since"
        assert len(new - set(acknowledged)) <= THREADS * GROUP_MAX, "more unanswered than was ever on its way"
        assert _sums(charges) == {row[:3]: row[3:] for row in accounts if any(row[3:])}
        self.recorded, self.acknowledged = recorded, acknowledged


def _row(position: int, data: bytes) -> tuple[str, int, str]:
    entry = Entry.parse(data)
    return entry.id, position, entry.code.word


def _acknowledged(folder: Path) -> Rows:
    """The whole lines: a writer may die in the midst of the last."""
    path = folder / ACKNOWLEDGED
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [(name, int(index), word) for name, index, word in (line.split() for line in lines)]


def _sums(charges: list[tuple[int, str, int, int | None, str]]) -> dict[tuple[str, str, int], tuple[int, int]]:
    """Posted and pending per account and coordinate, added up from the charges; accounts with neither left out."""
    sums: dict[tuple[str, str, int], tuple[int, int]] = {}
    for author, state, steps, steps_posted, prices in charges:
        for partition, segments in json.loads(prices).items():
            (segment,) = segments
            for coordinate, unit in enumerate(segment["price"]):
                posted, pending = unit * (steps_posted or 0), unit * steps * (state == "pending")
                for holder in (GLOBAL, holder_of(author)):
                    before = sums.get((partition, holder, coordinate), (0, 0))
                    sums[partition, holder, coordinate] = (before[0] + posted, before[1] + pending)
    return {account: sum_ for account, sum_ in sums.items() if any(sum_)}


def _drive(writers: Writers, folder: Path, seed: str, rounds: int) -> None:
    """One book from founding to the last of its kills."""
    dice = random.Random(seed)  # noqa: S311 - moments to die at
    folder.mkdir()
    with open_world(folder):
        pass
    book = Killed(folder)
    book.look("")
    for number in range(rounds):
        how = writers.kill_one(folder, f"r{number}", dice)
        sys.stdout.write(f"{how}\n")
        book.look(f"r{number}-")
    words = {word for _, _, word in book.acknowledged}
    counts = f"{len(book.recorded)} recorded, {len(book.acknowledged)} acknowledged"
    sys.stdout.write(f"seed {seed!r}: {rounds} kills, {counts}\n")
    assert words == {"pending", "posted", "voided"}, counts


def test_a_few_kills(writers: Writers, tmp_path: Path) -> None:
    """A slice of the soak that is the same every time, as far as clocks allow."""
    _drive(writers, tmp_path / "book", "slice", rounds=3)


@pytest.mark.soak
def test_two_hundred_kills(writers: Writers, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Twenty books, ten kills each, from a seed that is told and that EPSILON_SOAK_SEED sets."""
    seed = os.environ.get(SEED) or str(secrets.randbits(32))
    with capsys.disabled():
        sys.stdout.write(f"\n{SEED}={seed}\n")
        for number in range(BOOKS):
            _drive(writers, tmp_path / f"book-{number}", f"{seed} {number}", ROUNDS)
