"""Books whose writers are killed, and what is found of them after each."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import Any, Final

from sqlalchemy import select

from ledger.audit.replay import verify_book
from ledger.store.engine import engine_of
from ledger.store.tables import ENTRY
from tests.factories.loaded_process import LoadedProcess, loaded_process
from tests.factories.people import LOG
from tests.factories.stored import StoredWorld, no_step
from tests.faults.history import Call, Read, check_history
from tests.faults.writer import NOTES

ROOT: Final = Path(__file__).resolve().parents[2]
MOMENT_MAX: Final = 0.4
"""Seconds after the fork within which a writer is killed; opening the book takes the first of them."""
GROUPS: Final = 1_000
"""More than any writer lives to send."""


class Writers:
    """The process that forks writers."""

    def __init__(self, process: LoadedProcess) -> None:
        self._process = process

    def run(self, job: dict[str, Any], moment: float | None, meanwhile: Callable[[int], object] | None = None) -> int:
        """One writer from fork to end, killed after so many seconds if any; its exit status."""
        timers: list[Timer] = []

        def forked(pid: int) -> None:
            if moment is not None:
                timers.append(Timer(moment, os.kill, (pid, signal.SIGKILL)))
                timers[0].start()
            if meanwhile is not None:
                meanwhile(pid)

        ended = self._process.run({"groups": GROUPS, **job}, forked)
        for timer in timers:
            timer.cancel()
        return ended.status


@contextmanager
def writing() -> Iterator[Writers]:
    """One process for all kills, since it loads for seconds."""
    with loaded_process("tests.faults.writer") as process:
        yield Writers(process)


@dataclass
class Book:
    """One book on disk, and what was ever seen of it.

    Attributes:
        stated: whether its writers state its state.
    """

    folder: Path
    url: str
    founded: int
    stated: bool = False
    log: list[bytes] = field(default_factory=list)

    def job(self, prefix: str, dice: random.Random, **die: int) -> dict[str, Any]:
        """What a writer is told."""
        reported = {"folder": str(self.folder), "url": self.url, "prefix": prefix, "seed": dice.getrandbits(32)}
        return {**reported, "stated": self.stated, "die": die}

    def kill_one(self, writers: Writers, prefix: str, dice: random.Random) -> None:
        """Let one writer live for a while, by the clock or by its own count; then look."""
        ways: list[dict[str, int]] = [{}, {}]
        ways += [{"statement": dice.randint(1, 300)}, {"commit": dice.randint(1, 8)}, {"answers": dice.randint(1, 20)}]
        if self.url.startswith("sqlite"):
            ways.append({"instructions": dice.randint(1, 3_000)})
        if self.stated:
            ways += [{"stated": dice.randint(1, 4)}, {"stated_commit": dice.randint(1, 2)}]
            ways += [{"piece": dice.randint(1, 90)}, {"replaced": 1}]
        die = dice.choice(ways)
        self.kill(writers, prefix, dice, die, None if die else dice.uniform(0, MOMENT_MAX))

    def kill(
        self, writers: Writers, prefix: str, dice: random.Random, die: dict[str, int], moment: float | None = None
    ) -> None:
        """Let one writer die in one way; then look."""
        print(f"{prefix}: dies at {die or f'{moment:.3f} s'}")  # noqa: T201 - told if it fails
        status = writers.run(self.job(prefix, dice, **die), moment)
        assert os.WTERMSIG(status) == signal.SIGKILL, status
        self.look()

    def look(self) -> tuple[list[Call], list[Read]]:
        """Verify the book, hold all that was ever noted of it against its log, and see that nothing is gone."""
        finding = verify_book(self.url, LOG, no_step)
        log = self.entries()
        assert finding.entries == len(log)
        assert log[: len(self.log)] == self.log, "what was recorded stays"
        calls, reads = noted(self.folder)
        check_history(log, calls, reads, self.founded)
        self.log = log
        return calls, reads

    def entries(self) -> list[bytes]:
        """The bytes of every entry."""
        table, engine = ENTRY, engine_of(self.url, writes=False)
        try:
            with engine.begin() as connection:
                return [bytes(data) for (data,) in connection.execute(select(table.c.data).order_by(table.c.position))]
        finally:
            engine.dispose()

    def ask_again(self, name: str) -> str:
        """What a charge that was asked for before gets now."""
        world = StoredWorld(self.folder, self.url)
        try:
            return world.submit(world.charge(name))[0].code.word
        finally:
            world.book.close()


def noted(folder: Path) -> tuple[list[Call], list[Read]]:
    """The notes of every writer so far; the last line of one that died may be half there."""
    calls: dict[tuple[str, int], Call] = {}
    reads = []
    path = folder / NOTES
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            note = json.loads(line)
        except json.JSONDecodeError:
            continue
        if "root" in note:
            reads.append(Read(**note))
        else:
            calls[note["id"], note["began"]] = Call(**note)
    return list(calls.values()), reads
