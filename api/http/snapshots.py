"""Snapshots for reads: the current state, or the state at a size of the log, under snapshot isolation.

A past state is rebuilt by applying its entries one after another, so the service answers one such request at a time,
and none about more entries than :data:`AS_OF_MAX`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from api.http.problems import Problem, ServiceCode
from ledger.book.book import Book
from ledger.book.past_snapshot import PastSnapshot
from ledger.store.snapshot import Snapshot
from ledger.wire.malformed import Malformed

AS_OF_MAX: Final = 50_000
"""Entries that are applied to answer one request."""
LONG_MAX: Final = 2
"""Concurrent requests that take seconds of a processor."""


class SnapshotProvider:
    """Snapshots of one book, with limits on concurrent slow reads."""

    def __init__(self, book: Book, clock: Callable[[], int]) -> None:
        """``clock`` gives Unix milliseconds."""
        self.book = book
        self._clock = clock
        self._long = threading.BoundedSemaphore(LONG_MAX)
        self._past = threading.BoundedSemaphore(1)

    @contextmanager
    def read(self, as_of: int | None = None) -> Iterator[Snapshot | PastSnapshot]:
        """A snapshot. Raises: Malformed, if the log is shorter; Problem, if another request reads the past."""
        if as_of is None:
            with self.book.read() as now:
                yield now
            return
        with self.book.read() as facts:
            grown = facts.size
        if as_of > grown:
            raise Malformed("as_of", f"must be at most the {grown} entries of the log")
        if as_of > AS_OF_MAX:
            raise Malformed("as_of", f"must be at most {AS_OF_MAX}: a longer past is read from the book itself")
        with _slot(self._past), self.book.read_past(as_of) as past:
            yield past

    @contextmanager
    def read_long(self) -> Iterator[Snapshot]:
        """A snapshot for a request that takes seconds. Raises: Problem, if too many of those are running."""
        with self.long_place(), self.book.read() as facts:
            yield facts

    @contextmanager
    def long_place(self) -> Iterator[None]:
        """The place of a request that takes seconds. Raises: Problem, if too many of those are running."""
        with _slot(self._long):
            yield

    def time(self, facts: Snapshot | PastSnapshot) -> int:
        """The time of a snapshot (ms): the last entry's in the past; else the clock's, if that is later."""
        return facts.time if isinstance(facts, PastSnapshot) else max(self._clock(), facts.time)


@contextmanager
def _slot(slots: threading.BoundedSemaphore) -> Iterator[None]:
    if not slots.acquire(blocking=False):
        raise Problem(ServiceCode.BUSY, "too many slow requests are running; retry in a moment")
    try:
        yield
    finally:
        slots.release()
