"""Other processes that work ahead of this one: on a long book, reading entries and verifying signatures.

A task is a function of a module and plain values, so it comes to the same wherever it is done. A process that is lost
costs time and nothing else: what it had not answered is done here.
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from threading import Thread
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

T = TypeVar("T")
PIPE_BYTES: Final = 1 << 20
"""What Linux lets anybody have."""
ALONE_MAX: Final = 4_096
"""Entries that one process reads before another would have started."""


class Task(Generic[T]):
    """Something that was given away; its answer, once it is asked for."""

    def __init__(self, here: Callable[[], T], there: Future[T] | None, ready: Future[None] | None) -> None:
        """To be done ``here`` if not ``there``, where nobody is before ``ready``."""
        self._here, self._there, self._ready = here, there, ready
        self._answer: list[T] = []

    @property
    def done(self) -> bool:
        """Whether its answer is there, or nobody else is at it."""
        return self._there is None or self._there.done()

    def take(self) -> bool:
        """Do it here if nobody has begun with it; whether that was so."""
        if self._there is None or not self._there.cancel():
            return False
        self._there = None
        self._answer = [self._here()]
        return True

    def __call__(self) -> T:
        """The answer. It is not waited for where it would come no sooner: from processes that have not started yet."""
        if self._answer:
            return self._answer[0]
        if self._there is None or self._there.cancel() or not (self._ready and self._ready.done()):
            return self._here()
        try:
            return self._there.result()
        except BrokenProcessPool:
            return self._here()


class Hands:
    """So many processes; with none, everything is done here when its answer is asked for."""

    def __init__(self, processes: int, *, wait: bool = False) -> None:
        """They start at once, and are waited for if ``wait`` says so."""
        self.ahead = 8 * processes
        """How many tasks it is of use to have given before asking for the answer of the first."""
        self._pool = _started(processes) if processes else None
        self._ready = None if self._pool is None else self._pool.submit(_nothing)
        if wait and self._ready is not None:
            self._ready.result()

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        """End the processes; what was not begun is dropped."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def give(self, task: Callable[..., T], *given: Any) -> Task[T]:  # noqa: ANN401 - whatever it takes
        """Give a task away."""
        here, there = partial(task, *given), None
        if self._pool is not None:
            with suppress(BrokenProcessPool):
                there = self._pool.submit(task, *given)
        return Task(here, there, self._ready)


def hands_for(entries: int) -> int:
    """How many processes beside this one are of use for so many entries."""
    return 0 if entries <= ALONE_MAX else max(1, (os.cpu_count() or 1) - 1)


def _nothing() -> None:
    """The first task: who answers it has started."""


def _started(processes: int) -> ProcessPoolExecutor:
    # Started anew and not forked: a copy of a process with threads may hang on a lock that nobody lets go of.
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_begin)
    _widen(pool)
    return pool


def _widen(pool: ProcessPoolExecutor) -> None:
    """Let a whole task into the pipes at once: piece by piece, each waits for this process's interpreter.

    They are the pool's own, which has no word for this; where they are not as expected, all is as before, and slower.
    """
    with suppress(AttributeError, OSError):
        for end in (pool._call_queue._writer, pool._result_queue._reader):  # type: ignore[attr-defined] # noqa: SLF001 - see above
            fcntl.fcntl(end.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def _begin() -> None:
    """In a new process: an interrupt is for the one that gave the task, and without it there is nothing to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


__all__ = ["ALONE_MAX", "Hands", "Task", "hands_for"]
