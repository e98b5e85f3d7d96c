"""A process pool that works beside verification: on a long book it verifies signatures.

A task is a module's function with plain values as arguments, so its result does not depend on the process that ran it.
A worker process that is killed costs time and nothing else: this process runs the tasks that it had not answered.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from threading import Thread
from types import TracebackType
from typing import Final, ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
ALONE_MAX: Final = 4_096
"""Entries that one process verifies before another would have started."""


class WorkerPool:
    """A pool of processes; with none, a task runs in this process when its result is needed."""

    def __init__(self, processes: int, *, wait: bool = False) -> None:
        """Start the processes; with ``wait``, return when the first of them answers."""
        self.ahead = 8 * processes
        """How many tasks to submit before the first result is needed, so that every process has work."""
        self._pool: ProcessPoolExecutor | None = None
        self._started: Future[int] | None = None
        if processes:
            # Spawned, not forked: a forked copy of a process with threads may wait for a lock that no one releases.
            self._pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_begin)
            self._started = self._pool.submit(os.getpid)
        if wait and self._started is not None:
            self._started.result()

    def __enter__(self) -> Self:
        """Return the pool."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the processes and drop the tasks that none has begun."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def submit(self, task: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Callable[[], T]:
        """Queue a task; the returned function gives its result. The result never waits for a process to start."""
        future: Future[T] | None = None
        if self._pool is not None:
            with suppress(BrokenProcessPool):
                future = self._pool.submit(task, *args, **kwargs)

        def result() -> T:
            if future is not None and self._started is not None and self._started.done() and not future.cancel():
                with suppress(BrokenProcessPool):
                    return future.result()
            return task(*args, **kwargs)

        return result


def worker_count(entries: int) -> int:
    """How many processes beside this one make the verification of this many entries faster."""
    return 0 if entries <= ALONE_MAX else max(1, (os.cpu_count() or 1) - 1)


def _begin() -> None:
    """In a worker: leave an interrupt to the parent process, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


__all__ = ["ALONE_MAX", "WorkerPool", "worker_count"]
