"""A server that goes away, a file that may not be written, a clock that jumps: a clear error and a whole book."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import Connection, Engine, event

from ledger.audit.replay import verify_book
from ledger.book.submitted_command import BookStopped
from ledger.domain.outcomes import ChargeState
from tests.factories.documents import SMALL
from tests.factories.people import DAY_MS, LOG
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.postgres import Databases, Server

ROOT: Final = Path(__file__).resolve().parents[2]


BLOWS: Final = [
    (of, how) for of in ("INSERT INTO entry", "INSERT INTO checkpoint") for how in (signal.SIGINT, signal.SIGQUIT)
]
"""Stopped or crashed, before the first or the last that a batch writes; of the four, two differ in both."""


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Server, list[str]]]:
    """A server of its own, which waits for its disk, with a book for each blow."""
    found = Server()
    databases = Databases(found.dsn)
    urls = [databases.make(book=True).url for _ in BLOWS]
    databases.let_go()
    yield found, urls
    found.close()


@contextmanager
def _in_the_midst(of: str, blow: Callable[[], object]) -> Iterator[None]:
    """Strike once, when a statement of this beginning is about to run."""
    struck: list[bool] = []

    def strike(connection: Connection, cursor: object, statement: str, *rest: object) -> None:
        del connection, cursor, rest
        if statement.startswith(of) and not struck:
            struck.append(True)
            blow()

    event.listen(Engine, "before_cursor_execute", strike)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", strike)
    assert struck


@pytest.mark.parametrize(
    "blow", [pytest.param(0, marks=pytest.mark.soak), 1, 2, pytest.param(3, marks=pytest.mark.soak)]
)
def test_a_server_restarted_in_the_midst_of_a_batch(
    server: tuple[Server, list[str]], tmp_path: Path, blow: int
) -> None:
    """The writer is told that the outcome is unknown, and the book it finds afterwards is whole."""
    postgres, urls = server
    of, how = BLOWS[blow]
    world = StoredWorld(tmp_path, urls[blow])
    world.submit(*world.founding())
    sent = world.submit(world.charge("before", run=SMALL))
    batch = [world.charge(f"run-{number}", run=SMALL) for number in range(5)]

    def restart() -> None:
        postgres.stop(how)
        postgres.start()

    unknown = pytest.raises(BookStopped, match="is unknown: open the book again and send them again")
    with _in_the_midst(of, restart), unknown:
        world.submit(*batch)
    world.reopen()
    (again,) = world.submit(world.charge("before", run=SMALL))
    assert (again.repeated, again.index, again.body) == (True, sent[0].index, sent[0].body)
    assert [(one.code.word, one.repeated) for one in world.submit(*batch)] == [("pending", False)] * 5
    assert verify_book(world.url, LOG, no_step).charges == 6
    world.book.close()


_UNPRIVILEGED: Final = """
import ctypes, sys
from pathlib import Path
from ledger.book.submitted_command import BookStopped
from ledger.store.schema_revision import BookUnusable
from tests.factories.documents import SMALL
from tests.factories.stored import StoredWorld
# Root may write anything; without its capabilities (capset(2), version 3) it is an owner like every other.
header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert ctypes.CDLL(None, use_errno=True).capset(header, none) == 0
try:
    world = StoredWorld(Path(sys.argv[1]))
    world.submit(world.charge("more", run=SMALL))
except (BookStopped, BookUnusable) as fault:
    sys.exit(f"{type(fault).__name__}: {fault}")
"""


@pytest.mark.parametrize("mode", [0o400, 0o000])
@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_book_that_may_not_be_written(tmp_path: Path, what: str, mode: int) -> None:
    """A read-only or unreadable file or folder: one sentence that says so, and the same book afterwards."""
    home = tmp_path / "home"
    home.mkdir()
    with open_world(home) as world:
        world.submit(world.charge("before", run=SMALL))
    before, guarded = world.path.read_bytes(), world.path if what == "file" else home
    Path(f"{world.path}.lock").unlink()
    guarded.chmod(mode | (0o100 if what == "folder" else 0))
    try:
        command = [sys.executable, "-c", _UNPRIVILEGED, str(home)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    finally:
        guarded.chmod(0o700)
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith(("BookUnusable: ", "BookStopped: ")), done.stderr
    assert done.stderr.count("\n") == 1
    assert world.path.read_bytes() == before
    world.reopen()
    assert world.submit(world.charge("before", run=SMALL))[0].repeated
    world.book.close()


def test_a_clock_that_jumps_settles_nothing_early(tmp_path: Path) -> None:
    """A deadline passes when the log's time passes it: not again when the clock comes back."""
    with open_world(tmp_path) as world:
        world.submit(world.charge("near"), world.charge("far", deadline=world.clock.now + 20 * DAY_MS))
        world.clock.now -= 10 * DAY_MS
        assert world.submit(world.settle("near", 1))[0].code.word == "posted"
        world.clock.now += 31 * DAY_MS
        (late,) = world.submit(world.settle("far", 1))
        world.clock.now -= 30 * DAY_MS
        (again,) = world.submit(world.settle("far", 1))
        assert (late.code.word, again.code.word) == ("conflict", "conflict")
        with world.book.read() as facts:
            assert (facts.charges["far"].state, facts.charges["near"].steps_posted) == (ChargeState.VOIDED, 1)
    assert verify_book(world.url, LOG, no_step).charges == 2
