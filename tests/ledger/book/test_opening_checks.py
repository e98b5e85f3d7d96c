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
from tests.factories.documents import SMALL
from tests.factories.people import LOG, LOG_KEY, ORIGIN, private_key
from tests.factories.stored import StoredWorld, no_step, rows

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
def test_a_full_disk_stops_the_book(world: StoredWorld) -> None:
    """The caller is told that the outcome is unknown, so is everyone later; reading goes on; reopening answers."""
    world.submit(world.charge("before", run=SMALL))
    sent, before = [world.charge(f"run-{n}", run=SMALL) for n in range(80)], rows(world.url)
    with _full(), pytest.raises(BookStopped, match=r"(?s)full.* is unknown: open the book again and send them again"):
        world.submit(*sent)
    with pytest.raises(BookStopped, match="unknown"):
        world.submit(world.charge("after", run=SMALL))
    assert rows(world.url) == before
    assert world.size == 11
    world.reopen()
    assert world.submit(world.charge("before", run=SMALL))[0].repeated
    assert {(one.code.word, one.repeated) for one in world.submit(*sent)} == {("pending", False)}
    assert {(one.code.word, one.repeated) for one in world.submit(*sent)} == {("pending", True)}
    assert verify_book(world.url, LOG, no_step).charges == 81
