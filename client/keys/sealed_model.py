"""A sealed model: what a clean room writes where the model may never leave, opened in attested clean rooms alone.

The model's bytes under AES-256-GCM with a key of its own, bound to the charge that made it: a nonce of 12 bytes, then
the ciphertext with its tag. The model is known by the SHA-256 of all of that. Its key goes to the key store at once,
sealed with HPKE (RFC 9180) to the store's deposit key, and comes back only to a clean room whose opening is an entry.
"""

from __future__ import annotations

import os

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from client.keys.data_encryption import decrypt, encrypt
from client.keys.hpke_envelope import DATA_KEY_BYTES, open_key, seal
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed


def model_ref(model: str) -> str:
    """How an envelope names a model's key, where it names a partition's otherwise."""
    return f"model/{model}"


def seal_model(data: bytes, charge: str) -> tuple[bytes, bytes]:
    """The sealed model, and its fresh key of 32 bytes."""
    key = os.urandom(DATA_KEY_BYTES)
    return encrypt(key, _bound(charge), data), key


def open_model(sealed: bytes, key: bytes, charge: str) -> bytes:
    """The model's bytes. Raises: Malformed, if the key, the charge or a byte is another."""
    if len(key) != DATA_KEY_BYTES:
        raise Malformed("model", f"has no key of {DATA_KEY_BYTES} bytes")
    try:
        return decrypt(key, _bound(charge), sealed)
    except Malformed:
        raise Malformed("model", f"is not what charge {charge} sealed under this key") from None


def seal_deposit(key: bytes, deposit: str, charge: str, model: str) -> str:
    """A model's key for the store alone, whose X25519 deposit key is ``deposit`` (base64url). Raises: Malformed."""
    return seal(key, deposit, _deposit(charge), model_ref(model))


def open_deposit(sealed: str, private: X25519PrivateKey, charge: str, model: str) -> bytes:
    """The model's key, in the store. Raises: Malformed, if it was sealed to another, or for another model."""
    return open_key(sealed, private, _deposit(charge), model_ref(model))


def _bound(charge: str) -> str:
    return c.dump({"charge": charge, "kind": "sealed_model", "v": 1}).decode()


def _deposit(charge: str) -> c.Object:
    return {"charge": charge, "kind": "model_key_deposit", "v": 1}
