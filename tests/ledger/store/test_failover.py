"""A PostgreSQL server that takes over without the last entries: a process that knows them decides nothing on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from ledger.audit.replay import verify_book
from ledger.book.book import BookStopped
from tests.factories.people import LOG
from tests.factories.stored import StoredWorld, no_step
from tests.postgres import Database, databases, new_book


class Failover(NamedTuple):
    """A database that was replaced by an older copy, and a process that recorded an entry before, which is lost."""

    database: Database
    world: StoredWorld


@pytest.fixture
def failover(tmp_path: Path) -> Iterator[Failover]:
    """One charge is lost."""
    with new_book() as database:
        world = StoredWorld(tmp_path, database.url)
        world.submit(*world.founding())
        world.book.close()
        older = databases().copy(database)
        world = StoredWorld(tmp_path, database.url)
        assert world.submit(world.charge("lost"))[0].code.word == "pending"
        databases().replace(database, older)
        yield Failover(database, world)
        world.book.close()


@pytest.mark.parametrize("recorded_since", [0, 1, 2], ids=["shorter", "as-long", "longer"])
def test_a_process_stops_where_its_entries_were_lost(failover: Failover, tmp_path: Path, recorded_since: int) -> None:
    """However many entries the new server has got since: its budget is not spent by two pasts."""
    database, world = failover
    other = StoredWorld(tmp_path, database.url)
    for number in range(recorded_since):
        assert other.submit(other.charge(f"since-{number}"))[0].code.word == "pending"
    with pytest.raises(BookStopped, match="checkpoint: is of"):
        world.submit(world.charge("after"))
    assert other.submit(other.charge("goes-on"))[0].code.word == "pending"
    other.book.close()
    assert verify_book(database.owner, LOG, no_step).charges == recorded_since + 1


def test_an_idle_process_stops_too(failover: Failover) -> None:
    """The comparison of rows, which runs every minute, looks at the newest checkpoint first."""
    book = failover.world.book
    book.compare_rows()
    assert book.stopped is not None
    assert "checkpoint: is of" in book.stopped
    # A comparison after that does not wait for a writer that is gone.
    book.compare_rows()
