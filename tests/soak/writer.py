"""A process that fills books until it is killed: ``python -m tests.soak.writer``.

A line of JSON on standard input makes it fork a writer: four threads charge, settle and give up runs in groups,
and append what they were answered, id, index and outcome, to a file, synchronised before they go on. With
``instructions`` the writer kills itself after so many times twenty-five instructions of SQLite's machine, in the
midst of whatever statement that is; without, whoever started it kills it. Lines out: ``pid N``, ``ended STATUS``.

The fork spares each writer the seconds that loading dp_accounting and pricing the first run take.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Final

from sqlalchemy import event
from sqlalchemy.pool import Pool

from ledger.book import Submission
from tests.book.world import BANK_A, BANK_B, World, open_world, plan

ACKNOWLEDGED: Final = "acknowledged"
THREADS: Final = 4
GROUP_MAX: Final = 12
GROUPS: Final = 1_000
"""More than any writer lives to submit."""
TICK: Final = 25
TINY: Final = plan(5, "1000")
"""A run of which thousands fit."""


def main() -> None:
    """Serve until standard input ends."""
    with tempfile.TemporaryDirectory() as scratch, open_world(Path(scratch)) as world:
        world.submit(world.charge("warm", run=TINY))
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _write(Path(job["folder"]), job["prefix"], job["seed"], job["instructions"])
            os._exit(0)
        _say(f"pid {pid}")
        _, status = os.waitpid(pid, 0)
        _say(f"ended {status}")


def _say(text: str) -> None:
    os.write(1, text.encode() + b"\n")


def _write(folder: Path, prefix: str, seed: int, instructions: int) -> None:
    if instructions:
        _kill_at(instructions)
    world = World(folder)
    answered = os.open(folder / ACKNOWLEDGED, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def submit(number: int) -> None:
        dice = random.Random(f"{seed} {number}")  # noqa: S311 - what to do next
        outcomes = world.submit(*_group(world, f"{prefix}-{number}", dice))
        os.write(answered, "".join(f"{one.id} {one.index} {one.code.word}\n" for one in outcomes).encode())
        os.fsync(answered)

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(submit, range(GROUPS)))


def _group(world: World, name: str, dice: random.Random) -> list[Submission]:
    """One to six charges, some of them settled or given up at once."""
    group = []
    for place in range(dice.randint(1, GROUP_MAX // 2)):
        charge, bank = f"{name}-{place}", dice.choice((BANK_A, BANK_B))
        group.append(world.charge(charge, bank, TINY))
        end = dice.randrange(4)
        if end == 0:
            group.append(world.settle(charge, dice.randint(0, 5), bank))
        elif end == 1:
            group.append(world.void(charge, bank))
    return group


def _kill_at(most: int) -> None:
    """Die at the most-th tick of all connections made from now on."""
    ticks = count(1)

    def tick() -> None:
        if next(ticks) >= most:
            os.kill(os.getpid(), signal.SIGKILL)

    def connected(connection: sqlite3.Connection, record: object) -> None:
        del record
        connection.set_progress_handler(tick, TICK)

    event.listen(Pool, "connect", connected)


if __name__ == "__main__":
    main()
