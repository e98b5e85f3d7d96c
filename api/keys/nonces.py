"""Challenges: one-time nonces that evidence and key release must answer, so that neither can be replayed.

A nonce is worth nothing by itself and is forgotten when the process ends; the clean room requests another.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from itertools import takewhile
from typing import Final

from ledger.wire import canonical_json as c

NONCE_BYTES: Final = 32
LIFE_S: Final = 120
LIFE_MS: Final = LIFE_S * 1000
OPEN_MAX: Final = 4_096
OPEN_MAX_PER_CHARGE: Final = 16


class NoRoom(Exception):  # noqa: N818 - reads as what it says
    """Too many challenges are open; one expires soon."""


class Challenges:
    """The open nonces of one process."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """Let nonces expire by ``clock``, which gives milliseconds."""
        self._clock = clock
        self._lock = threading.Lock()
        # By nonce its charge and when it expires, in order of issue, which is the order of expiry.
        self._open: dict[str, tuple[str, int]] = {}

    def issue(self, charge: str) -> str:
        """A fresh nonce for the key release of ``charge``. Raises: NoRoom."""
        with self._lock:
            now = self._clock()
            self._forget_expired(now)
            of_charge = [nonce for nonce, (owner, _) in self._open.items() if owner == charge]
            if len(of_charge) >= OPEN_MAX_PER_CHARGE:
                # The oldest is dropped, so that other callers' requests never keep the clean room from its own.
                del self._open[of_charge[0]]
            elif len(self._open) >= OPEN_MAX:
                raise NoRoom
            nonce = c.base64url(secrets.token_bytes(NONCE_BYTES))
            self._open[nonce] = charge, now + LIFE_MS
            return nonce

    def burn(self, nonce: str, charge: str) -> bool:
        """Use a nonce up, whatever comes of it; whether it was open for ``charge``."""
        with self._lock:
            self._forget_expired(self._clock())
            owner, _ = self._open.pop(nonce, ("", 0))
            return owner == charge

    def _forget_expired(self, now: int) -> None:
        for nonce in [*takewhile(lambda nonce: self._open[nonce][1] <= now, self._open)]:
            del self._open[nonce]
