"""A line every few seconds while a process is waited for, so that a reader of a pipe too sees that it goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console

EVERY_S: Final = 4.0


@contextmanager
def heartbeat(console: Console, what: str, every_s: float = EVERY_S) -> Iterator[None]:
    """Say on ``console`` that ``what`` begins, and then every ``every_s`` seconds until the block ends."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(every_s):
            console.print(f"  [dim]· still {what}[/dim]", highlight=False)

    console.print(f"  [dim]· {what}[/dim]", highlight=False)
    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
