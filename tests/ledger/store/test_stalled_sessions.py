"""A process that stalls under the lock of a PostgreSQL book: the server ends its session, and others go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from ledger.store import engine, merkle_tables
from ledger.store.engine import WRITE_LOCK, engine_of, limits_transactions, run_plainly
from ledger.store.merkle_tables import lock_and_read
from ledger.store.postgres.pipeline import committed_together
from tests.postgres import new_book

LONG: Final = "600s"


@pytest.fixture
def writer() -> Iterator[Callable[[], Connection]]:
    """Makes connections of processes that write one book, each in a transaction of its own."""
    with new_book() as book:
        made = [engine_of(book.url, writes=True) for _ in range(2)]
        opened: list[Connection] = []

        def next_one() -> Connection:
            connection = made[len(opened)].connect()
            opened.append(connection)
            connection.begin()
            return connection

        yield next_one
        for connection in opened:
            connection.invalidate()
            connection.close()
        for one in made:
            one.dispose()


@contextmanager
def in_a_pipeline(connection: Connection) -> Iterator[None]:
    """A part of a batch is sent, and what would end it is not."""
    with committed_together(connection):
        run_plainly(connection, "SELECT 1")
        yield


@pytest.mark.parametrize("reads", [False, True])
def test_a_session_that_is_idle_under_the_lock_is_ended(
    writer: Callable[[], Connection], monkeypatch: pytest.MonkeyPatch, *, reads: bool
) -> None:
    """Before it has read what it decides on, and after it: so while it decides a batch."""
    monkeypatch.setitem(engine.WRITING, "idle_in_transaction_session_timeout", "1s")
    monkeypatch.setattr(merkle_tables, "HOLD_S", 600)
    stalled, other = writer(), writer()
    if reads:
        assert lock_and_read(stalled, 0).entries == []
    else:
        run_plainly(stalled, "SELECT pg_advisory_xact_lock(%s)", (WRITE_LOCK,))
    assert lock_and_read(other, 0).revision
    with pytest.raises(DBAPIError, match=r"idle-in-transaction timeout|closed the connection"):
        run_plainly(stalled, "SELECT 1")


def test_a_session_that_has_sent_half_of_a_batch_is_ended(
    writer: Callable[[], Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server does not count it as idle, and limits its transaction."""
    monkeypatch.setitem(engine.WRITING, "idle_in_transaction_session_timeout", LONG)
    monkeypatch.setattr(merkle_tables, "HOLD_S", 1)
    stalled, other = writer(), writer()
    assert limits_transactions(stalled)
    lock_and_read(stalled, 0)
    with pytest.raises(psycopg.Error), in_a_pipeline(stalled):
        assert lock_and_read(other, 0).entries == []


def test_a_process_that_waits_for_the_lock_has_its_whole_time_once_it_has_it(
    writer: Callable[[], Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit counts from the lock on."""
    monkeypatch.setattr(merkle_tables, "HOLD_S", 1)
    first, second = writer(), writer()
    lock_and_read(first, 0)
    # Ends when the first one's session is ended, a second later.
    lock_and_read(second, 0)
    assert run_plainly(second, "SELECT current_setting('transaction_timeout')") == [("1s",)]
    second.rollback()
    second.begin()
    assert run_plainly(second, "SELECT current_setting('transaction_timeout')") == [("0",)]
