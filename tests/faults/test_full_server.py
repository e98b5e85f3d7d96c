"""A PostgreSQL server that can write no further: a clear error, a whole book, and everything once there is room.

The limit is one on the size of files (RLIMIT_FSIZE), which needs no privilege and ends a write as a full disk does:
the table that holds the entries cannot grow, or the server's own log cannot, which crashes the server.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from sqlalchemy import make_url

from ledger.audit.replay import verify_book
from ledger.book.submitted_command import BookStopped
from tests.factories.documents import SMALL
from tests.factories.people import LOG
from tests.factories.stored import StoredWorld, no_step
from tests.postgres import Database, Databases, Server

SEGMENT_BYTES: Final = 16 << 20
"""A file of the server's own log is as long from the beginning, so that no less stops a table alone."""
SHORT_BYTES: Final = 1 << 20
FILLER: Final = """
    ALTER TABLE entry DISABLE TRIGGER ALL;
    INSERT INTO entry
        SELECT 1000000 + n, n, 'filler', 0, decode(repeat('00', 1800), 'hex') FROM generate_series(1, 8400) n
"""
"""Four rows a page of eight kilobytes; undone, they leave the pages."""


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Server, list[Database]]]:
    """A server of its own, whose tables nobody tidies, with a book for each test."""
    found = Server(autovacuum="off", fsync="off")
    try:
        databases = Databases(found.dsn)
        made = [databases.make(book=True) for _ in range(2)]
        databases.let_go()
        yield found, made
    finally:
        found.close()


def _owner(database: Database) -> psycopg.Connection[Any]:
    plain = make_url(database.owner).set(drivername="postgresql").render_as_string(hide_password=False)
    return psycopg.connect(plain, autocommit=True)


def test_a_table_that_cannot_grow(server: tuple[Server, list[Database]], tmp_path: Path) -> None:
    """The batch fails with the server's sentence; what is there can be read and verified meanwhile."""
    postgres, (database, _) = server
    world = StoredWorld(tmp_path, database.url)
    world.submit(*world.founding())
    (sent,) = world.submit(world.charge("before", run=SMALL))
    batch = [world.charge(f"run-{number}", run=SMALL) for number in range(24)]
    world.book.close()
    with _owner(database) as owner, owner.transaction(force_rollback=True):
        owner.execute(FILLER)
    postgres.confine(SEGMENT_BYTES)
    for _ in range(2):
        world.book = world.open()
        with pytest.raises(BookStopped, match=r"could not extend file .* is unknown: open the book again"):
            world.submit(*batch)
        world.book.close()
        assert verify_book(database.url, LOG, no_step).charges == 1
    postgres.confine(resource.RLIM_INFINITY)
    _goes_on(world, sent.body, batch)


def test_a_server_whose_own_log_cannot_grow(server: tuple[Server, list[Database]], tmp_path: Path) -> None:
    """The server crashes at the commit and mends itself: nothing of the batch is there, and it can be sent again."""
    postgres, (_, database) = server
    world = StoredWorld(tmp_path, database.url)
    world.submit(*world.founding())
    (sent,) = world.submit(world.charge("before", run=SMALL))
    batch = [world.charge(f"run-{number}", run=SMALL) for number in range(3)]
    with _owner(database) as owner:
        while not SHORT_BYTES < _written(owner) < SEGMENT_BYTES - SHORT_BYTES:
            owner.execute("SELECT pg_logical_emit_message(false, 'filler', repeat('x', 1 << 20))")
        chosen = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        backends = [pid for (pid,) in owner.execute(chosen)]
    postgres.confine(SHORT_BYTES, *backends)
    with pytest.raises(BookStopped, match="is unknown: open the book again and send them again"):
        world.submit(*batch)
    world.book.close()
    postgres.wait()
    assert "could not write to log file" in (postgres.folder / "log").read_text()
    assert verify_book(database.url, LOG, no_step).charges == 1
    _goes_on(world, sent.body, batch)


def _written(owner: psycopg.Connection[Any]) -> int:
    """How far the newest file of the server's own log is written."""
    found = owner.execute("SELECT (pg_walfile_name_offset(pg_current_wal_flush_lsn())).file_offset").fetchone()
    assert found is not None
    return int(found[0])


def _goes_on(world: StoredWorld, before: object, batch: list[Any]) -> None:
    """What was answered before is answered the same; what was not is recorded, once."""
    world.book = world.open()
    (again,) = world.submit(world.charge("before", run=SMALL))
    assert (again.repeated, again.body) == (True, before)
    assert [(one.code.word, one.repeated) for one in world.submit(*batch)] == [("pending", False)] * len(batch)
    world.book.close()
    assert verify_book(world.url, LOG, no_step).charges == 1 + len(batch)
