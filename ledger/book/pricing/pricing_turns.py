"""Turns at the workers that compute prices: organisations take them one after the other.

One organisation's prices may take minutes of a processor, which no one knows before. So each has a line of its own, of
bounded length, and at most half of the workers. Work of an organisation that is alike, as commands which one price
serves, is one turn: the first of it computes, and the rest finds what was computed.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

from ledger.book.submitted_command import CLOSED, BookStopped, PricingRefused

T = TypeVar("T")
AT_ONCE: Final = max(2, os.cpu_count() or 1)
"""How many commands are priced at once: pricing is work for processors alone. One organisation has half of them."""
TURNS_MAX: Final = 32
"""Turns that one organisation may wait for at once."""


class _Work(NamedTuple):
    """Some work, and the future that gets what it returns or raises."""

    run: Callable[[], Any]
    future: Future[Any]


class _Line:
    """What waits of one organisation, by what makes it alike; and how many workers it has."""

    def __init__(self) -> None:
        self.waiting: dict[Hashable, deque[_Work]] = {}
        self.running = 0


class PricingTurns:
    """A pool of threads that serves organisations in turn, used from any thread."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        """``at_once``: how many threads; one organisation has at most half of them."""
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="book-pricing")
        self._lock = threading.Lock()
        # In the order in which they came or were served last.
        self._lines: dict[str, _Line] = {}
        self._free, self._of_one = at_once, max(1, at_once // 2)
        self._closed = False

    def submit(self, organisation: str, alike: Hashable, run: Callable[[], T]) -> Future[T]:
        """Run something in a turn of an organisation; the future gets its result, or BookStopped at closing.

        Args:
            alike: what waits already under the same key is run in the same turn, before this.

        Raises:
            PricingRefused: if so many turns of the organisation wait already.
        """
        work = _Work(run, Future[Any]())
        with self._lock:
            if self._closed:
                _stop(work)
                return work.future
            line = self._lines.setdefault(organisation, _Line())
            if alike in line.waiting:
                line.waiting[alike].append(work)
            elif len(line.waiting) >= TURNS_MAX:
                raise PricingRefused(f"{TURNS_MAX} runs of the organisation wait to be priced: send it again")
            else:
                line.waiting[alike] = deque([work])
            self._begin_turns()
        return work.future

    def close(self) -> None:
        """Run nothing more; what is running goes on, and what waits gets BookStopped."""
        with self._lock:
            self._closed = True
            waiting = [work for line in self._lines.values() for group in line.waiting.values() for work in group]
            for line in self._lines.values():
                line.waiting.clear()
        # A callback of a future may submit.
        for work in waiting:
            _stop(work)
        self._pool.shutdown(wait=False)

    def _begin_turns(self) -> None:
        """Give every free worker to the first organisation in order that waits and may have one more."""
        while self._free:
            able = (one for one, line in self._lines.items() if line.waiting and line.running < self._of_one)
            if (organisation := next(able, None)) is None:
                return
            line = self._lines.pop(organisation)
            self._lines[organisation] = line
            group = line.waiting.pop(next(iter(line.waiting)))
            self._free -= 1
            line.running += 1
            self._pool.submit(self._take_turn, organisation, line, group)

    def _take_turn(self, organisation: str, line: _Line, group: deque[_Work]) -> None:
        while group:
            work = group.popleft()
            if self._closed:
                _stop(work)
            else:
                _run(work)
        with self._lock:
            self._free += 1
            line.running -= 1
            if not (line.running or line.waiting):
                del self._lines[organisation]
            if not self._closed:
                self._begin_turns()


def _stop(work: _Work) -> None:
    # Not cancelled: to a coroutine that waits for it that would look as if it was cancelled itself.
    if work.future.set_running_or_notify_cancel():
        work.future.set_exception(BookStopped(CLOSED))


def _run(work: _Work) -> None:
    if not work.future.set_running_or_notify_cancel():
        return
    try:
        found = work.run()
    except BaseException as error:  # noqa: BLE001 - whatever it was, the one that waits gets it
        work.future.set_exception(error)
    else:
        work.future.set_result(found)
