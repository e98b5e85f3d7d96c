"""Places of requests that take seconds of a processor: a caller has one, and those that wait get theirs in turn.

A request that waits holds one of the threads that answer requests. So few wait, each for seconds, and of one caller
only one.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Final

from api.http.problems import Problem, ServiceCode

WAITING_MAX: Final = 8
"""Slow requests that wait for a place at once, one of each caller."""
PLACE_WAIT_S: Final = 5.0
"""Seconds that a slow request waits for a place."""
_RETRY_S: Final = 2
"""Seconds after which a slow request that was refused may be sent again."""


class SlowPlaces:
    """So many places, used from any thread."""

    def __init__(self, places: int) -> None:
        """All are free."""
        self._lock = threading.Lock()
        self._free = places
        self._running: set[Hashable] = set()
        # In the order in which they came.
        self._waiting: dict[Hashable, threading.Event] = {}

    @property
    def waiting(self) -> int:
        """How many requests wait at this moment."""
        return len(self._waiting)

    @contextmanager
    def taken(self, caller: Hashable, wait_s: float = PLACE_WAIT_S) -> Iterator[None]:
        """A place of a caller while the block runs, for which it waits ``wait_s`` seconds at most.

        Raises:
            Problem (429): if the caller has a place and another request that waits, or has its place all that time.
            Problem (503): if too many requests wait, or others have the places all that time.
        """
        given = self._enter(caller)
        if not given.wait(wait_s):
            self._give_up(caller, given)
        try:
            yield
        finally:
            with self._lock:
                self._free += 1
                self._running.discard(caller)
                self._give_places()

    def _enter(self, caller: Hashable) -> threading.Event:
        with self._lock:
            if caller in self._waiting:
                raise _own()
            if len(self._waiting) >= WAITING_MAX:
                raise _others()
            given = self._waiting[caller] = threading.Event()
            self._give_places()
            return given

    def _give_up(self, caller: Hashable, given: threading.Event) -> None:
        """Wait no more, unless the place has come in this very moment. Raises: Problem."""
        with self._lock:
            if given.is_set():
                return
            del self._waiting[caller]
            raise _own() if caller in self._running else _others()

    def _give_places(self) -> None:
        for caller in [*self._waiting]:
            if self._free and caller not in self._running:
                self._free -= 1
                self._running.add(caller)
                self._waiting.pop(caller).set()


def _own() -> Problem:
    detail = "another slow request of yours is running: send one after the other"
    return Problem(ServiceCode.TOO_MANY, detail, retry_s=_RETRY_S)


def _others() -> Problem:
    return Problem(ServiceCode.BUSY, "too many slow requests are running; retry in a moment")
