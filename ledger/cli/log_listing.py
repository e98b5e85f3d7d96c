"""Reading a book's entries for people: in order, with the reasons of a refusal."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ledger.domain.entries import Entry
from ledger.store.engine import engine_of
from ledger.store.snapshot import Snapshot


def entries_of(url: str) -> Iterator[tuple[int, Entry]]:
    """Every entry of a book with its index, as of now. Raises: Malformed, if one cannot be read."""
    engine = engine_of(url, writes=False)
    try:
        with engine.begin() as connection:
            book = Snapshot(connection)
            for index in range(book.size):
                yield index, Entry.parse(book.entry(index))
    finally:
        engine.dispose()


def reasons(entry: Entry) -> list[str]:
    """Every check of a refusal that failed, in order."""
    checks: Any = entry.body.get("checks", [])
    return [f"{check['code']}: {check['text']}" for check in checks if not check["passed"]]


def time_in_words(moment: int) -> str:
    """Unix milliseconds as a UTC time."""
    return datetime.fromtimestamp(moment / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
