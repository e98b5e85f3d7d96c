"""Challenges: one-time nonces that evidence and key release must answer, so that neither can be replayed.

A nonce is derived by a key that every process of a book has, so any of them knows it and none stores it:

    size (5 bytes) | expires (6 bytes) | random (5 bytes) | HMAC-SHA256 of all that and the charge (16 bytes)

``size`` is that of the log when the nonce was issued, ``expires`` a time in Unix milliseconds; the code (RFC 2104,
truncated) makes the nonce unpredictable. The book burns it: the first entry that holds the nonce uses it up,
whichever process recorded it, and that entry's index is at least ``size``.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from typing import Final, NamedTuple

from ledger.book.state.used_nonces import ANSWERING
from ledger.commands.entry import Entry
from ledger.store.snapshot import Snapshot
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

LIFE_S: Final = 120
LIFE_MS: Final = LIFE_S * 1000
SKEW_MS: Final = 30_000
"""How far the clocks of two processes may differ."""
_SIZE, _EXPIRES, _RANDOM, _MAC = 5, 6, 5, 16


class Issued(NamedTuple):
    """The log's size when a nonce was issued, and when the nonce expires (Unix ms)."""

    size: int
    expires: int


class Challenges:
    """The nonces of one book."""

    def __init__(self, key: bytes, clock: Callable[[], int]) -> None:
        """Processes that serve one book share ``key``; nonces expire by ``clock``, which gives milliseconds."""
        self._key, self._clock = key, clock

    def issue(self, charge: str, size: int) -> str:
        """A fresh nonce for the key release of ``charge``, when the log has ``size`` entries."""
        expires = self._clock() + LIFE_MS
        fields = size.to_bytes(_SIZE) + expires.to_bytes(_EXPIRES) + secrets.token_bytes(_RANDOM)
        return c.base64url(fields + self._mac(fields, charge))

    def read(self, nonce: str, charge: str) -> Issued | None:
        """When a nonce was issued for ``charge``; None if it was not, or not for this book."""
        try:
            data = c.unbase64url(nonce, "nonce")
        except Malformed:
            return None
        fields, mac = data[:-_MAC], data[-_MAC:]
        if len(fields) != _SIZE + _EXPIRES + _RANDOM or not hmac.compare_digest(mac, self._mac(fields, charge)):
            return None
        return Issued(int.from_bytes(fields[:_SIZE]), int.from_bytes(fields[_SIZE : _SIZE + _EXPIRES]))

    def is_open(self, issued: Issued) -> bool:
        """Whether a nonce has not expired."""
        return 0 < issued.expires - self._clock() <= LIFE_MS + SKEW_MS

    def _mac(self, fields: bytes, charge: str) -> bytes:
        return hmac.digest(self._key, fields + charge.encode(), "sha256")[:_MAC]


def burnt_at(facts: Snapshot, nonce: str, issued: Issued) -> int | None:
    """The index of the first entry that holds a nonce; None as long as none does."""
    spelled = nonce.encode()
    for index, data in facts.entries_of(ANSWERING, issued.size):
        # Most entries are posts without a nonce.
        if spelled in data and Entry.parse(data).request.get("nonce") == nonce:
            return index
    return None
