"""SIGINT and SIGTERM while a run trains: the first one ends it before its next noise, the second is the system's."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

STOPPING: Final = (signal.SIGINT, signal.SIGTERM)


class Asked:
    """Whether a signal came."""

    def __init__(self) -> None:
        """None yet."""
        self.name = ""

    def __call__(self) -> str:
        """Why the run ends, or nothing."""
        return f"stopped by {self.name}" if self.name else ""


@contextmanager
def listening() -> Iterator[Asked]:
    """Listen until the block ends; only Python's main thread can, elsewhere nothing is heard."""
    asked = Asked()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {one: signal.getsignal(one) for one in STOPPING}

    def hear(number: int, _frame: FrameType | None) -> None:
        asked.name = signal.Signals(number).name
        # Whoever asks twice does not want to wait for the post.
        signal.signal(number, before[signal.Signals(number)])

    try:
        for one in STOPPING:
            signal.signal(one, hear)
        yield asked
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
