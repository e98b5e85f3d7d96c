"""A process that fills books until it is killed: ``python -m tests.faults.writer``.

A line of JSON on standard input makes it fork a writer for one book, which four threads fill with charges, settling
some and giving some up, in groups. Each thread notes in the book's folder when it asked, and what it was answered,
for :mod:`tests.faults.history`; a fifth reads. ``die`` says how the writer ends: at a number of instructions of
SQLite's machine, at the n-th statement, when one of RETURNS has happened so often, when so many groups were answered,
at a limit on the size of files; or not by itself, and whoever started it kills it. With ``stated`` the book states its
state and writes snapshots often.

The fork (:mod:`tests.factories.loaded_process`) spares each writer the seconds that loading dp_accounting and pricing
the first run take.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sqlite3
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Event, current_thread
from types import FrameType
from typing import Any, Final

from sqlalchemy import Engine, event
from sqlalchemy.pool import Pool

from ledger.book.submitted_command import BookStopped, Submission
from tests.factories.documents import plan
from tests.factories.loaded_process import serve
from tests.factories.people import BANK_A, BANK_B
from tests.factories.stored import StoredWorld, open_world
from tests.faults.stated_world import StatedWorld, state_often

NOTES: Final = "notes"
THREADS: Final = 4
GROUP_MAX: Final = 12
TICK: Final = 25
TINY: Final = plan(5, "1000")
"""A run of which thousands fit."""
BIG: Final = plan(100, "1.5")
"""A run of which few do."""
_NOTED: Final = ("book-writer", "StateStatements.note")
_COMMITTED: Final = ("book-", "commit_batch")
RETURNS: Final = {
    "commit": (_COMMITTED,),
    "stated": (_NOTED,),
    "stated_commit": (_NOTED, _COMMITTED),
    "piece": (("state-snapshot_0", "SnapshotFile._pieces"),),
    "replaced": (("state-snapshot_0", "replace_file"),),
}
"""Moments at which a function has just returned in a thread whose name begins so; those before it did so earlier.

A commit has returned and nobody is answered yet; a statement of state is decided and not committed; a commit has
returned since, the second one at the latest with the statement; a piece of a snapshot is written; the file has it.
"""


def main() -> None:
    """Serve until standard input ends."""
    with tempfile.TemporaryDirectory() as scratch, open_world(Path(scratch)) as world:
        world.submit(world.charge("warm", run=TINY), world.charge("big", run=BIG))
    serve(_write)


def _write(job: dict[str, Any]) -> None:
    _prepare(job["die"])
    folder = Path(job["folder"])
    if job["stated"]:
        state_often(setattr)
    world = (StatedWorld if job["stated"] else StoredWorld)(folder, job["url"])
    notes = os.open(folder / NOTES, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if "bytes" in job["die"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["die"]["bytes"],) * 2)
    done, answered = Event(), _killer(job["die"].get("answers", job["groups"] + 1))

    def call(number: int) -> None:
        dice = random.Random(f"{job['seed']} {number}")  # noqa: S311 - what to do next
        ask(world, notes, f"{job['prefix']}.{number}", dice)
        answered()

    def read() -> None:
        while not done.wait(0.005):
            began = time.monotonic_ns()
            with world.book.read() as facts:
                size, root = facts.size, facts.root.hex()
            _note(notes, [{"began": began, "ended": time.monotonic_ns(), "size": size, "root": root}])

    with ThreadPoolExecutor(THREADS + 1) as threads:
        reader = threads.submit(read)
        list(threads.map(call, range(job["groups"])))
        done.set()
        reader.result()


def ask(world: StoredWorld, notes: int, name: str, dice: random.Random) -> None:
    """Send a group of commands and note what became of it, before and after."""
    group, began = _group(world, name, dice), time.monotonic_ns()
    _note(notes, [{"id": json.loads(one.raw)["id"], "began": began} for one in group])
    try:
        outcomes = world.submit(*group)
    except BookStopped:
        return
    reported = [
        {"id": one.id, "began": began, "word": one.code.word, "index": one.index, "repeated": one.repeated}
        for one in outcomes
    ]
    _note(notes, [{**one, "ended": time.monotonic_ns()} for one in reported])


def _note(notes: int, lines: list[dict[str, Any]]) -> None:
    os.write(notes, "".join(f"{json.dumps(one)}\n" for one in lines).encode())


def _group(world: StoredWorld, name: str, dice: random.Random) -> list[Submission]:
    """One to six charges, some of them settled or given up at once, and by chance twice."""
    group = []
    for place in range(dice.randint(1, GROUP_MAX // 2)):
        charge, bank = f"{name}.{place}", dice.choice((BANK_A, BANK_B))
        group.append(world.charge(charge, bank, BIG if dice.random() < 0.03 else TINY))
        ends = dice.choice(((), (), ("post",), ("void",), ("post", "void")))
        group += [
            world.void(charge, bank) if end == "void" else world.settle(charge, dice.randint(0, 5), bank)
            for end in ends
        ]
    return group


def _prepare(die: dict[str, int]) -> None:
    if "instructions" in die:
        _at_instructions(die["instructions"])
    if "statement" in die:
        event.listen(Engine, "before_cursor_execute", _killer(die["statement"]))
    for word in RETURNS.keys() & die.keys():
        _after_returns(RETURNS[word], die[word])


def _killer(most: int) -> Any:  # noqa: ANN401 - a listener of any event
    seen = count(1)

    def kill(*args: object) -> None:
        del args
        if next(seen) >= most:
            os.kill(os.getpid(), signal.SIGKILL)

    return kill


def _at_instructions(most: int) -> None:
    """Die at the most-th tick of all SQLite connections made from now on, in the midst of whatever it is."""
    kill = _killer(most)

    def connected(connection: sqlite3.Connection, record: object) -> None:
        del record
        connection.set_progress_handler(kill, TICK)

    event.listen(Pool, "connect", connected)


def _after_returns(functions: tuple[tuple[str, str], ...], most: int) -> None:
    """Die when the last of the functions has returned for the most-th time since those before it did."""
    kill, waiting = _killer(most), [*functions]

    def returned(frame: FrameType, happened: str, value: object) -> None:
        del value
        if happened != "return":
            return
        thread, name = waiting[0]
        if frame.f_code.co_qualname.endswith(name) and current_thread().name.startswith(thread):
            if len(waiting) > 1:
                waiting.pop(0)
            else:
                kill()

    threading.setprofile(returned)


if __name__ == "__main__":
    main()
