"""Whether an answer that takes long is still waited for: its request was not answered yet, and its caller is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fastapi import Request

OVER: Final = "epsilon.over"
"""In the scope of a request: a function that says whether a problem has answered it already, as it took too long."""


async def is_wanted(request: Request) -> bool:
    """Whether its caller waits for the answer; for a request whose body was read."""
    over: Callable[[], bool] | None = request.scope.get(OVER)
    return not (over is not None and over()) and not await request.is_disconnected()
