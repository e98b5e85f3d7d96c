"""The clock that a book and its service share."""

from __future__ import annotations

import time


def unix_ms() -> int:
    """Unix time in milliseconds."""
    return time.time_ns() // 1_000_000
