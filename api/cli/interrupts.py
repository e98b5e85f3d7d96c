"""Ctrl-C and SIGTERM, which end a command wherever it is."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts() -> Iterator[list[int]]:
    """Let SIGTERM end the block as Ctrl-C does; gives the list of the signals that come. One that is ignored stays so.

    Python drops an interrupt that comes while it frees an object: the list still holds it.
    """
    received: list[int] = []

    def interrupt(number: int, _frame: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    numbers = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
