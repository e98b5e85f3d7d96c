"""A partition's data at rest: AES-256-GCM under its data key, bound to the partition's reference; a sealed model too.

The bytes: a nonce of 12, then the ciphertext with its tag. The reference is associated data, so one partition's
file does not open in another's place although they share a data key.
"""

from __future__ import annotations

import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from client.keys.hpke_envelope import DATA_KEY_BYTES
from ledger.wire.malformed import Malformed

NONCE_BYTES: Final = 12


def encrypt(data_key: bytes, partition: str, data: bytes) -> bytes:
    """What is stored; a fresh nonce each time. Raises: Malformed, for a data key of another length."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + _cipher(data_key).encrypt(nonce, data, partition.encode())


def decrypt(data_key: bytes, partition: str, stored: bytes) -> bytes:
    """The data again. Raises: Malformed, if the key, the partition or a byte is another."""
    cipher = _cipher(data_key)
    try:
        return cipher.decrypt(stored[:NONCE_BYTES], stored[NONCE_BYTES:], partition.encode())
    except (InvalidTag, ValueError):
        raise Malformed("data", f"does not open with the data key of {partition}") from None


def _cipher(data_key: bytes) -> AESGCM:
    # AESGCM takes a shorter key without a word, and is then AES-128.
    if len(data_key) != DATA_KEY_BYTES:
        raise Malformed("data_key", f"must have {DATA_KEY_BYTES} bytes")
    return AESGCM(data_key)
