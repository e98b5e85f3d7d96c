"""Who may have a book open, and what stops it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Connection, Engine, event

from ledger.audit.replay import verify_book
from ledger.book.book import BookStopped, BookUnusable
from ledger.store.append_only_triggers import sqlite_triggers
from tests.factories.documents import SMALL
from tests.factories.people import LOG, LOG_KEY, ORIGIN, private_key
from tests.factories.statements import state_now
from tests.factories.stored import StoredWorld, no_step, rows
from tests.ledger.store.test_postgresql import execute

ROOT: Final = Path(__file__).resolve().parents[3]
only_sqlite: Final = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
"""PostgreSQL has no file to lock or to limit; test_postgres.py has what it has instead."""


@only_sqlite
def test_a_second_opening_is_refused(world: StoredWorld) -> None:
    """In the same process; after closing it is not."""
    with pytest.raises(BookUnusable, match=r"another process has the book at .* open for writing"):
        world.open()
    assert world.submit(world.charge("run-1", run=SMALL))[0].code.word == "pending"
    world.reopen()


@only_sqlite
def test_a_second_process_is_refused(world: StoredWorld) -> None:
    """And may open the book once the first has let go."""
    script = (
        "import sys\nfrom pathlib import Path\nfrom ledger.book.book import BookUnusable\n"
        "from tests.factories.stored import StoredWorld\n"
        "try:\n    StoredWorld(Path(sys.argv[1])).book.close()\n"
        "except BookUnusable as fault:\n    sys.exit(str(fault))\n"
    )
    command = [sys.executable, "-c", script, str(world.path.parent)]
    second = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (second.returncode, "another process has the book" in second.stderr) == (1, True)
    world.book.close()
    third = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (third.returncode, third.stderr) == (0, "")


@only_sqlite
@pytest.mark.damages
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE document SET data = x'00'",
        "DELETE FROM document",
    ],
)
def test_a_book_whose_policy_was_changed_is_not_opened(world: StoredWorld, change: str) -> None:
    """While it was closed, by someone who may drop the triggers: a wider cap, or none."""
    world.book.close()
    of_policy = "WHERE digest IN (SELECT document FROM policy_version)"
    for statement in ("DROP TRIGGER document_no_update", "DROP TRIGGER document_no_delete", f"{change} {of_policy}"):
        execute(world.url, statement)
    guarded = sqlite_triggers()
    for trigger in ("document_no_update", "document_no_delete"):
        execute(world.url, guarded[trigger])
    with pytest.raises(BookUnusable, match=r"document [0-9a-f]{64}: is missing or was changed"):
        world.open()


@pytest.mark.parametrize(("key", "origin"), [(private_key("another log"), ORIGIN), (LOG_KEY, "epsilon.example/other")])
def test_another_logs_book_is_refused(world: StoredWorld, key: Ed25519PrivateKey, origin: str) -> None:
    """A book under another key or another origin would grow checkpoints that nobody can check."""
    world.book.close()
    with pytest.raises(BookUnusable, match="checkpoint"):
        world.open(log_key=key, origin=origin)
    world.book = world.open()


@contextmanager
def _full() -> Iterator[None]:
    """Every database that is written while the block runs may not grow by a page."""

    def limit(connection: Connection) -> None:
        connection.exec_driver_sql("PRAGMA max_page_count = 1")

    event.listen(Engine, "begin", limit)
    try:
        yield
    finally:
        event.remove(Engine, "begin", limit)


@only_sqlite
@pytest.mark.parametrize("stated", [False, True])
def test_a_full_disk_stops_the_book(world: StoredWorld, stated: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """The caller is told that the outcome is unknown, so is everyone later; reading goes on; reopening answers."""
    world.submit(world.charge("before", run=SMALL))
    if stated:
        state_now(world.book)
    founded = world.size
    sent, before = [world.charge(f"run-{n}", run=SMALL) for n in range(80)], rows(world.url)
    with _full(), pytest.raises(BookStopped, match=r"(?s)full.* is unknown: open the book again and send them again"):
        world.submit(*sent)
    with pytest.raises(BookStopped, match="unknown"):
        world.submit(world.charge("after", run=SMALL))
    assert rows(world.url) == before
    assert world.size == founded
    world.reopen()
    assert world.submit(world.charge("before", run=SMALL))[0].repeated
    assert {(one.code.word, one.repeated) for one in world.submit(*sent)} == {("pending", False)}
    assert {(one.code.word, one.repeated) for one in world.submit(*sent)} == {("pending", True)}
    if stated:
        state_now(world.book)
    assert verify_book(world.url, LOG, no_step).charges == 81
