"""Places of requests: a caller has few of them, and those that wait get theirs in turn, caller after caller.

Slow requests, which take seconds of a processor, wait in the thread that answers them. So few wait, each for seconds,
and of one caller only one. What reads the book otherwise waits in a coroutine, and holds no thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Hashable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final, NamedTuple

from api.http.problems import Problem, ServiceCode

WAITING_MAX: Final = 8
"""Slow requests that wait for a place at once, one of each caller."""
READING_MAX: Final = 12
"""Requests that read the book at once, the slow ones not counted."""
READING_EACH_MAX: Final = 4
"""Of those, of one caller."""
READERS_WAITING_MAX: Final = 256
"""Requests that wait to read the book."""
READERS_WAITING_EACH_MAX: Final = 64
"""Of those, of one caller."""
PLACE_WAIT_S: Final = 5.0
"""Seconds that a request waits for a place."""
_RETRY_S: Final = 2
"""Seconds after which a request that was refused may be sent again."""


class PlaceTerms(NamedTuple):
    """How many requests of one caller have a place, and how many wait; what those are told that get none.

    Attributes:
        each: places of one caller at once.
        waiting_each: requests of one caller that wait.
        waiting: requests that wait.
        own: is told to a caller that has all that one may have.
        others: is told where others have the places.
    """

    each: int
    waiting_each: int
    waiting: int
    own: str
    others: str


SLOW: Final = PlaceTerms(
    1,
    1,
    WAITING_MAX,
    "another slow request of yours is running: send one after the other",
    "too many slow requests are running; retry in a moment",
)
READING: Final = PlaceTerms(
    READING_EACH_MAX,
    READERS_WAITING_EACH_MAX,
    READERS_WAITING_MAX,
    f"{READING_EACH_MAX} requests of yours are being answered, and others wait: send fewer at once",
    "too many requests read the book; retry in a moment",
)


class CallerPlaces:
    """So many places, used from any thread and coroutine."""

    def __init__(self, places: int, terms: PlaceTerms = SLOW) -> None:
        """All are free."""
        self._lock = threading.Lock()
        self._free, self._terms = places, terms
        self._running = Counter[Hashable]()
        # In the order in which they came or got a place last.
        self._waiting: dict[Hashable, deque[Future[None]]] = {}

    @property
    def waiting(self) -> int:
        """How many requests wait at this moment."""
        with self._lock:
            return self._count()

    @contextmanager
    def taken(self, caller: Hashable, wait_s: float = PLACE_WAIT_S) -> Iterator[None]:
        """A place of a caller while the block runs, for which this thread waits ``wait_s`` seconds at most.

        Raises:
            Problem (429): if the caller has its places and as many requests that wait, or all that time.
            Problem (503): if too many requests wait, or others have the places all that time.
        """
        given = self._enter(caller)
        with suppress(TimeoutError):
            given.result(wait_s)
        self._check_given(caller, given)
        try:
            yield
        finally:
            self._leave(caller)

    @asynccontextmanager
    async def awaited(self, caller: Hashable, wait_s: float = PLACE_WAIT_S) -> AsyncIterator[None]:
        """The same for a coroutine: no thread waits. Raises: as :meth:`taken`."""
        given = self._enter(caller)
        try:
            if not given.done():
                await asyncio.wait([asyncio.wrap_future(given)], timeout=wait_s)
        except BaseException:
            if not self._withdrawn(caller, given):
                self._leave(caller)
            raise
        self._check_given(caller, given)
        try:
            yield
        finally:
            self._leave(caller)

    def _enter(self, caller: Hashable) -> Future[None]:
        with self._lock:
            if len(self._waiting.get(caller, ())) >= self._terms.waiting_each:
                raise self._own()
            if self._count() >= self._terms.waiting:
                raise self._others()
            given = Future[None]()
            self._waiting.setdefault(caller, deque()).append(given)
            self._give_places()
            return given

    def _check_given(self, caller: Hashable, given: Future[None]) -> None:
        """Wait no more, unless the place has come in this very moment. Raises: Problem."""
        if self._withdrawn(caller, given):
            raise self._own() if self._running[caller] >= self._terms.each else self._others()

    def _withdrawn(self, caller: Hashable, given: Future[None]) -> bool:
        with self._lock:
            if given.done():
                return False
            line = self._waiting[caller]
            line.remove(given)
            if not line:
                del self._waiting[caller]
            return True

    def _leave(self, caller: Hashable) -> None:
        with self._lock:
            self._free += 1
            self._running[caller] -= 1
            if not self._running[caller]:
                del self._running[caller]
            self._give_places()

    def _give_places(self) -> None:
        while self._free and (caller := self._next()) is not None:
            line = self._waiting.pop(caller)
            self._free -= 1
            self._running[caller] += 1
            line.popleft().set_result(None)
            if line:
                # Behind the others that wait.
                self._waiting[caller] = line

    def _next(self) -> Hashable | None:
        return next((caller for caller in self._waiting if self._running[caller] < self._terms.each), None)

    def _count(self) -> int:
        return sum(map(len, self._waiting.values()))

    def _own(self) -> Problem:
        return Problem(ServiceCode.TOO_MANY, self._terms.own, retry_s=_RETRY_S)

    def _others(self) -> Problem:
        return Problem(ServiceCode.BUSY, self._terms.others)
