"""Those who read take no connection from the writer, however many they are and however long they read."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from ledger.book.book import BookBusy
from ledger.book.opening_checks import READERS_MAX
from ledger.store import engine
from tests.factories.documents import SMALL
from tests.factories.stored import StoredWorld


def test_the_writer_goes_on_while_all_connections_of_readers_are_held(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the rows of a key release, and the comparison of rows its snapshot; one reader more finds it busy."""
    monkeypatch.setattr(engine, "CONNECT_S", 0.05)
    world.reopen()
    world.submit(world.charge("run-1", run=SMALL))
    release = world.release("run-1", SMALL)
    with ExitStack() as reading:
        for _ in range(READERS_MAX):
            assert reading.enter_context(world.book.read()).size == 11
        with pytest.raises(BookBusy, match="the database does not answer now"), world.book.read():
            pass
        outcomes = world.submit(release, world.charge("run-2", run=SMALL))
        assert [one.code.word for one in outcomes] == ["permitted", "pending"]
        assert world.book.compare_rows() is None
        assert world.book.stopped is None
    assert world.size == 13
