"""A process that writes books until it is killed: ``python -m tests.book.writer_process``.

A line of JSON on standard input, ``{"folder":...,"prefix":"k1","die":{...}}``, makes it fork a writer for that
book, which four threads fill with charges. ``die`` says how the writer ends: at the n-th statement of its
writing connection, after the n-th commit and before anyone is answered, at a limit on the size of files, or not
by itself. Lines out: ``pid N``, ``ack NAME``, ``stopped NAME``, ``ended STATUS``.

The fork spares each writer the seconds that loading dp_accounting and pricing the first run take.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.pool import Pool

from ledger.book import BookStopped
from tests.book.world import SMALL, World, open_world

CHARGES_MAX = 300
THREADS = 4


def main() -> None:
    """Serve until standard input ends."""
    with tempfile.TemporaryDirectory() as scratch, open_world(Path(scratch)) as world:
        world.submit(world.charge("warm", run=SMALL))
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _write(Path(job["folder"]), job["prefix"], job["die"])
            os._exit(0)
        _say(f"pid {pid}")
        _, status = os.waitpid(pid, 0)
        _say(f"ended {status}")


def _say(text: str) -> None:
    os.write(1, text.encode() + b"\n")


def _write(folder: Path, prefix: str, die: dict[str, int]) -> None:
    world = World(folder)
    if "statement" in die:
        event.listen(Engine, "before_cursor_execute", _killer(die["statement"]))
    if "commit" in die:
        _kill_after_commit(die["commit"])
    if "bytes" in die:
        resource.setrlimit(resource.RLIMIT_FSIZE, (die["bytes"], die["bytes"]))
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(lambda number: _charge(world, f"{prefix}-{number}"), range(CHARGES_MAX)))


def _killer(most: int) -> Any:  # noqa: ANN401 - a listener of either event
    seen = count(1)

    def kill(*args: object) -> None:
        del args
        if next(seen) >= most:
            os.kill(os.getpid(), signal.SIGKILL)

    return kill


def _kill_after_commit(most: int) -> None:
    """A writing connection goes back to its pool after the commit and before anyone is answered."""
    kill, writing = _killer(most), set[int]()

    def began(connection: Connection, cursor: object, statement: str, *rest: object) -> None:
        del cursor, rest
        if statement == "BEGIN IMMEDIATE":
            writing.add(id(connection.connection.dbapi_connection))

    def returned(connection: object, record: object) -> None:
        del record
        if id(connection) in writing:
            kill()

    event.listen(Engine, "before_cursor_execute", began)
    event.listen(Pool, "checkin", returned)


def _charge(world: World, name: str) -> None:
    try:
        (outcome,) = world.submit(world.charge(name, run=SMALL))
    except BookStopped:
        _say(f"stopped {name}")
    else:
        _say(f"ack {name} {outcome.code.word}")


if __name__ == "__main__":
    main()
