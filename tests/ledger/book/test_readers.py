"""Those who read take no connection from the writer, however many they are; of a stopped book they read the log."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from ledger.book.book import BookBusy, BookStopped
from ledger.book.opening_checks import READERS_MAX
from ledger.store import engine
from ledger.verifier import verify_receipt
from tests.factories.documents import PARTITION, SMALL
from tests.factories.people import LOG
from tests.factories.stored import StoredWorld, open_world


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


def test_of_a_stopped_book_the_log_is_read_and_no_state(tmp_path: Path) -> None:
    """No row of its state is compared with the entries any more; an entry has its proof."""
    with open_world(tmp_path) as world:
        world.book.stop(RuntimeError("as a disk that fails"))
        with world.book.read() as facts:
            assert verify_receipt(facts.receipt(3), facts.entry(3), LOG)[1].size == facts.size == 10
            reads: list[Callable[[], object]] = [
                lambda: facts.accounts,
                lambda: facts.organisations,
                lambda: facts.documents,
                lambda: facts.holders(PARTITION, 9),
                lambda: facts.publication,
            ]
            for read in reads:
                with pytest.raises(BookStopped, match="as a disk that fails"):
                    read()
        with world.book.read_past(10) as past:
            assert PARTITION in past.partitions
