"""Snapshots for reads: the current state, or the state at a size of the log, under snapshot isolation.

A past state is rebuilt by applying its entries one after another, so the service answers one such request at a time,
and none about more entries than :data:`AS_OF_MAX`. A caller has one place of its own: :mod:`api.http.caller_places`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Final

from anyio import CapacityLimiter

from api.http.caller_places import PLACE_WAIT_S, CallerPlaces
from ledger.book.book import Book
from ledger.book.past_snapshot import PastSnapshot
from ledger.store.snapshot import Snapshot
from ledger.wire.malformed import Malformed

AS_OF_MAX: Final = 50_000
"""Entries that are applied to answer one request."""
STEPS_MAX: Final = 4
"""Streams of events that read the book at once."""
LONG_MAX: Final = 2
"""Concurrent requests that take seconds of a processor."""


class SnapshotProvider:
    """Snapshots of one book, with limits on concurrent slow reads."""

    def __init__(self, book: Book, clock: Callable[[], int]) -> None:
        """``clock`` gives Unix milliseconds."""
        self.book = book
        self._clock = clock
        # Those that wait for their next read hold no thread.
        self.steps = CapacityLimiter(STEPS_MAX)
        self.long = CallerPlaces(LONG_MAX)
        self.past = CallerPlaces(1)

    @contextmanager
    def read(
        self, as_of: int | None = None, caller: Hashable = None, wait_s: float = PLACE_WAIT_S
    ) -> Iterator[Snapshot | PastSnapshot]:
        """A snapshot; ``caller`` reads the past, and waits so many seconds for its place at most.

        Raises:
            Malformed: if the log is shorter.
            Problem: if other requests read the past, see :meth:`CallerPlaces.taken`.
        """
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
        with self.past.taken(caller, wait_s), self.book.read_past(as_of) as past:
            yield past

    @contextmanager
    def read_long(self, caller: Hashable) -> Iterator[Snapshot]:
        """A snapshot for a request that takes seconds. Raises: as :meth:`CallerPlaces.taken`."""
        with self.long.taken(caller), self.book.read() as facts:
            yield facts

    def time(self, facts: Snapshot | PastSnapshot) -> int:
        """The time of a snapshot (ms): the last entry's in the past; else the clock's, if that is later."""
        return facts.time if isinstance(facts, PastSnapshot) else max(self._clock(), facts.time)
