"""How often a caller sends what got no answer: some times, or until a moment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

PAUSE_MAX_S: Final = 30.0
TOLD_AT: Final = 3
"""After so many trials a person would like to know."""
_TOO_MANY: Final = 429
_SERVER_ERROR: Final = 500
_DOUBLED_MAX: Final = 16


def _silent(_line: str) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True)
class Patience:
    """Send again, later and later.

    Attributes:
        attempts: how often at most, where there is no ``until`` or it is past.
        backoff_s: seconds before the second trial, then twice that, and so on up to half a minute.
        until: Unix seconds; until then it is sent as often as it takes, also to a service that is busy.
        tell: is told once, in one line, that no answer comes and until when it is sent.
    """

    attempts: int
    backoff_s: float = 0.2
    until: float | None = None
    tell: Callable[[str], None] = _silent

    def takes(self, status: int) -> bool:
        """Whether an answer of this status may be another one next time."""
        return status >= _SERVER_ERROR or (self.until is not None and status == _TOO_MANY)

    def pause(self, attempt: int, fault: Exception, clock: Callable[[], float]) -> float | None:
        """Seconds to wait after a trial (0 is the first), or None: it was the last."""
        pause = self.backoff_s * 2.0 ** min(attempt, _DOUBLED_MAX)
        left = 0.0 if self.until is None else self.until - clock()
        if left <= 0:
            return None if attempt + 1 >= self.attempts else pause
        if attempt == TOLD_AT:
            self.tell(f"{fault}; it is sent again and again, for {left:.0f} s at most")
        return min(pause, PAUSE_MAX_S, left)
