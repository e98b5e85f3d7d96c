"""The key of a mark on its way to the clean room that marks, and the commitment to it."""

from __future__ import annotations

from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from client.keys.hpke_envelope import open_key, seal
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

_COMMITMENT: Final = b"epsilon-ledger watermark commitment v1 "
_WATERMARK: Final = "watermark"


def commitment_of(key: bytes) -> str:
    """The SHA-256, in lower-case hexadecimal, that commits to a key and does not show it."""
    return c.digest(_COMMITMENT + key)


def seal_key(key: bytes, sealing: str, charge: str) -> str:
    """A key for the clean room of a charge alone, whose X25519 key is ``sealing`` (base64url). Raises: Malformed."""
    return seal(key, sealing, _bound(charge), _WATERMARK)


def open_sealed_key(sealed: object, private: X25519PrivateKey, charge: str, commitment: object) -> bytes:
    """The key. Raises: Malformed, if it was sealed to another key or charge, or is not the one that is committed to."""
    key = open_key(sealed, private, _bound(charge), _WATERMARK)
    if commitment_of(key) != commitment:
        raise Malformed("commitment", "is not to the key that came with it")
    return key


def _bound(charge: str) -> c.Object:
    return {"charge": charge, "kind": "watermark_key", "v": 1}
