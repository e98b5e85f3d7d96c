"""SIGINT and SIGTERM while a run trains: the first ends it before its next noise, the second acts as by default."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Final

STOPPING: Final = (signal.SIGINT, signal.SIGTERM)
_OUTERMOST: Final[list[list[str]]] = []
"""The signals that came since the outermost block of this process began, in one list, while there is such a block."""


@contextmanager
def stop_signals() -> Iterator[Callable[[], str]]:
    """Handle the signals within the block, in Python's main thread only; what it yields says which came, or nothing.

    A block inside another reports the same signals, so that a room and the run that it serves stop by the same one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: ""
        return
    if _OUTERMOST:
        yield partial(_in_words, _OUTERMOST[0])
        return
    came: list[str] = []
    before = {number: signal.getsignal(number) for number in STOPPING}

    def handle(number: int, _frame: FrameType | None) -> None:
        came.append(signal.Signals(number).name)
        # A user who interrupts twice does not want to wait for the post.
        signal.signal(number, before[signal.Signals(number)])

    _OUTERMOST.append(came)
    try:
        for number in STOPPING:
            signal.signal(number, handle)
        yield partial(_in_words, came)
    finally:
        _OUTERMOST.clear()
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_words(came: list[str]) -> str:
    return f"stopped by {came[-1]}" if came else ""
