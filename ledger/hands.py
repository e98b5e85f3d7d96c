"""Other processes that work ahead of this one: on a long book, reading entries and verifying signatures.

A task is a function of a module and plain values, so it comes to the same wherever it is done. A process that is lost
costs time and nothing else: what it had not answered is done here.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from threading import Thread
from types import TracebackType
from typing import Any, Final, Self, TypeVar

T = TypeVar("T")
ALONE_MAX: Final = 4_096
"""Entries that one process reads before another would have started."""


class Hands:
    """So many processes; with none, everything is done here when its answer is asked for."""

    def __init__(self, processes: int) -> None:
        """They start with the first task."""
        self.ahead = 2 * processes
        """How many tasks it is of use to have given before asking for the answer of the first."""
        self._pool = _started(processes) if processes else None

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        """End the processes; what was not begun is dropped."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def give(self, task: Callable[..., T], *given: Any) -> Callable[[], T]:  # noqa: ANN401 - whatever it takes
        """Give a task away; its answer, once it is asked for."""
        here = partial(task, *given)
        if self._pool is None:
            return here
        try:
            return partial(_answer, self._pool.submit(task, *given), here)
        except BrokenProcessPool:
            return here


def hands_for(entries: int) -> int:
    """How many processes beside this one are of use for so many entries."""
    return 0 if entries <= ALONE_MAX else max(1, (os.cpu_count() or 1) - 1)


def _answer(there: Future[T], here: Callable[[], T]) -> T:
    try:
        return there.result()
    except BrokenProcessPool:
        return here()


def _started(processes: int) -> ProcessPoolExecutor:
    # Started anew and not forked: a copy of a process with threads may hang on a lock that nobody lets go of.
    return ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_begin)


def _begin() -> None:
    """In a new process: an interrupt is for the one that gave the task, and without it there is nothing to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


__all__ = ["ALONE_MAX", "Hands", "hands_for"]
