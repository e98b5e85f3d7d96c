"""Checks of requests on the current state, made together: one snapshot and one change of thread for all that wait.

A snapshot costs more than what a command reads from it. So while one group of checks is made in a thread, those of
later requests wait, and the next snapshot, which is taken after all of them have come, serves them all.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

from api.http.problems import Problem
from ledger.book.book import Book
from ledger.store.snapshot import Snapshot
from ledger.wire.malformed import Malformed

T = TypeVar("T")
GROUP_MAX: Final = 64
"""Checks on one snapshot."""
_Waiting = tuple[Callable[[Snapshot], Any], "asyncio.Future[Any]"]
_Answer = tuple["asyncio.Future[Any]", Any, Exception | None]


class GroupedReads:
    """Runs functions of a snapshot of one book."""

    def __init__(self, book: Book) -> None:
        """Read ``book``."""
        self._book = book
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="grouped-reads")
        self._lock = threading.Lock()
        self._waiting: list[_Waiting] = []
        self._running = False

    async def run(self, check: Callable[[Snapshot], T]) -> T:
        """What a function makes of a snapshot that was taken after this call.

        Raises:
            BookBusy, BookStopped: if there is none.
            Exception: what the function raises.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._waiting.append((check, future))
            starts, self._running = not self._running, True
        if starts:
            self._pool.submit(self._serve)
        return await future

    def _serve(self) -> None:
        while group := self._take():
            loops: dict[asyncio.AbstractEventLoop, list[_Answer]] = {}
            for answer in self._answers(group):
                loops.setdefault(answer[0].get_loop(), []).append(answer)
            for loop, answers in loops.items():
                # On a closed loop no request waits.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(_settle, answers)

    def _take(self) -> list[_Waiting]:
        with self._lock:
            group, self._waiting = self._waiting[:GROUP_MAX], self._waiting[GROUP_MAX:]
            self._running = bool(group)
            return group

    def _answers(self, group: list[_Waiting]) -> list[_Answer]:
        answers: list[_Answer] = []
        failed = len(group)
        try:
            with self._book.read() as facts:
                failed = 1
                for check, future in group:
                    try:
                        answers.append((future, check(facts), None))
                    except (Problem, Malformed) as error:
                        answers.append((future, None, error))
        except Exception as error:  # noqa: BLE001 - the application reports it
            # Without a snapshot every check failed; else one check did, and the rest need another snapshot.
            done = len(answers) + failed
            answers += [(future, None, error) for _, future in group[len(answers) : done]]
            with self._lock:
                self._waiting = group[done:] + self._waiting
        return answers


def _settle(answers: list[_Answer]) -> None:
    for future, value, error in answers:
        # Its request may have been cancelled meanwhile.
        if future.done():
            continue
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
