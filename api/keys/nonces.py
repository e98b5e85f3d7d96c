"""Challenges: one-time nonces that evidence and key release must answer, so that neither can be replayed.

A nonce is worth nothing by itself and is forgotten when the process ends; the clean room asks for another.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ledger.wire import canonical_json as c

NONCE_BYTES: Final = 32
LIFE_S: Final = 120
LIFE_MS: Final = LIFE_S * 1000
OPEN_MAX: Final = 4_096
OPEN_MAX_PER_CHARGE: Final = 16


class NoRoom(Exception):  # noqa: N818 - reads as what it says
    """Too many challenges are open; one expires soon."""


@dataclass(frozen=True, slots=True)
class _Open:
    charge: str
    expires: int


class Challenges:
    """The open nonces of one process."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """Let nonces expire by ``clock``, which gives milliseconds."""
        self._clock = clock
        self._lock = threading.Lock()
        # In order of issue, which is the order of expiry.
        self._open: dict[str, _Open] = {}

    def issue(self, charge: str) -> str:
        """A fresh nonce for the key release of ``charge``. Raises: NoRoom."""
        with self._lock:
            now = self._clock()
            self._forget_expired(now)
            of_charge = [nonce for nonce, item in self._open.items() if item.charge == charge]
            if len(of_charge) >= OPEN_MAX_PER_CHARGE:
                # The oldest is dropped, so that other callers' requests never keep the clean room from its own.
                del self._open[of_charge[0]]
            elif len(self._open) >= OPEN_MAX:
                raise NoRoom
            nonce = c.base64url(secrets.token_bytes(NONCE_BYTES))
            self._open[nonce] = _Open(charge, now + LIFE_MS)
            return nonce

    def burn(self, nonce: str, charge: str) -> bool:
        """Use a nonce up, whatever comes of it; whether it was open for ``charge``."""
        with self._lock:
            self._forget_expired(self._clock())
            item = self._open.pop(nonce, None)
            return item is not None and item.charge == charge

    def _forget_expired(self, now: int) -> None:
        while self._open:
            oldest = next(iter(self._open))
            if self._open[oldest].expires > now:
                return
            del self._open[oldest]
