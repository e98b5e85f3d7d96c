"""One state in three places: in the writer's memory, in the rows for readers, and in a replay of the entries."""

from __future__ import annotations

from typing import Any

from ledger.book.book import Book
from ledger.commands.apply import apply
from ledger.commands.entry import Entry
from ledger.domain.memory_state import MemoryState
from ledger.domain.outcomes import ChargeState
from ledger.store.database_state import PROJECTIONS, check_rows
from ledger.store.documents import StoredDocuments
from ledger.store.engine import engine_of
from ledger.store.snapshot import Snapshot


def check_agreement(book: Book, url: str) -> int:
    """Close a book and compare all three; returns its size. A book that had stopped may be ahead of what is stored."""
    stopped = book.stopped
    book.close()
    engine = engine_of(url, writes=False)
    try:
        with engine.begin() as connection:
            stored = Snapshot(connection)
            replayed = MemoryState(documents=StoredDocuments(connection))
            for index in range(stored.size):
                apply(replayed, Entry.parse(stored.entry(index)), index)
            check_rows(stored, replayed)
            state = book._writer._state  # noqa: SLF001 - what is in memory is nobody else's business
            if stopped is None and state.size == stored.size:
                assert state.root == stored.root
                check_memory(book, replayed)
            return stored.size
    finally:
        engine.dispose()


def check_memory(book: Book, replayed: MemoryState) -> None:
    """The writer's memory, while it rests, is all that entries make but settled charges and their clean rooms' keys."""
    parts: dict[str, dict[Any, Any]] = book._writer._state.facts.in_memory_parts()  # noqa: SLF001 - nobody else's business
    pending = {name: one for name, one in replayed.charges.items() if one.state is ChargeState.PENDING}
    keys = {name: one for name, one in replayed.keys.items() if one.charge is None or one.charge in pending}
    for name in PROJECTIONS:
        expected = {"charges": pending, "keys": keys}.get(name, getattr(replayed, name))
        assert parts[name] == expected, name
