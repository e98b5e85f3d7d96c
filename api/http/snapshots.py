"""What stands now, or stood when the log had so many entries: the facts that a read is answered from.

The past is made by applying entries one after another, which costs as many as there are; so only one such question
is answered at a time, and none about more entries than :data:`AS_OF_MAX`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

from fastapi import Query

from api.http.field_types import PLACE_PATTERN
from api.http.problems import Fault, Problem
from ledger.store.snapshot import Past
from ledger.wire.malformed import Malformed

if TYPE_CHECKING:
    from ledger.book.book import Book
    from ledger.store.snapshot import Snapshot

AS_OF_MAX: Final = 50_000
"""Entries that are applied to answer one question."""
LONG_MAX: Final = 2
"""Questions answered at once that take seconds of a processor."""
AsOf = Annotated[
    str | None, Query(pattern=PLACE_PATTERN, description="a size of the log: what stood after so many entries")
]


class Moments:
    """Snapshots of one book, and turns for what takes long."""

    def __init__(self, book: Book, clock: Callable[[], int]) -> None:
        """``clock`` gives Unix milliseconds."""
        self.book = book
        self._clock = clock
        self._long = threading.BoundedSemaphore(LONG_MAX)
        self._past = threading.BoundedSemaphore(1)

    @contextmanager
    def read(self, as_of: str | None = None) -> Iterator[Snapshot | Past]:
        """The facts. Raises: Malformed, if the log has not grown so far; Problem, if others are asking."""
        if as_of is None:
            with self.book.read() as now:
                yield now
            return
        size = int(as_of)
        with self.book.read() as facts:
            grown = facts.size
        if size > grown:
            raise Malformed("as_of", f"must be at most the {grown} entries of the log")
        if size > AS_OF_MAX:
            raise Malformed("as_of", f"must be at most {AS_OF_MAX}: a longer past is read from the book itself")
        with _turn(self._past), self.book.read(as_of=size) as past:
            yield past

    @contextmanager
    def long(self) -> Iterator[Snapshot]:
        """The facts, for a question that takes seconds. Raises: Problem, if as many as may be are being answered."""
        with _turn(self._long), self.book.read() as facts:
            yield facts

    def time(self, facts: Snapshot | Past) -> int:
        """What time it is for these facts (ms): the last entry's in the past; now, the clock's if that is later."""
        return facts.time if isinstance(facts, Past) else max(self._clock(), facts.time)


@contextmanager
def _turn(turns: threading.BoundedSemaphore) -> Iterator[None]:
    if not turns.acquire(blocking=False):
        raise Problem(Fault.BUSY, "others are asking what takes as long; ask again in a moment")
    try:
        yield
    finally:
        turns.release()
