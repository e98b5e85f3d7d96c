"""SIGINT and SIGTERM while a run trains: the first ends it before its next noise, the second acts as by default."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

STOPPING: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_signals() -> Iterator[Callable[[], str]]:
    """Handle the signals within the block, in Python's main thread only; what it yields says which came, or nothing."""
    came: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: ""
        return
    before = {number: signal.getsignal(number) for number in STOPPING}

    def handle(number: int, _frame: FrameType | None) -> None:
        came.append(signal.Signals(number).name)
        # A user who interrupts twice does not want to wait for the post.
        signal.signal(number, before[signal.Signals(number)])

    try:
        for number in STOPPING:
            signal.signal(number, handle)
        yield lambda: f"stopped by {came[-1]}" if came else ""
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
