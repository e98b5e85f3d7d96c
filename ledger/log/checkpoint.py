r"""Signing checkpoints and assembling receipts; :mod:`ledger.verifier` defines the forms and checks both.

epsilon.example/ledger
18
nVb1...=

— epsilon.example/ledger 8J3k...==
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger.verifier import RECEIPT_MARK, Checkpoint, LogKey, to_base64


def sign(checkpoint: Checkpoint, private: Ed25519PrivateKey, key: LogKey | None = None) -> str:
    """The signed note (C2SP tlog-checkpoint); ``key`` is the public half, where it is known."""
    key = key or LogKey(checkpoint.origin, private.public_key().public_bytes_raw())
    signature = private.sign(checkpoint.text.encode())
    return f"{checkpoint.text}\n— {key.name} {to_base64(key.id + signature)}\n"


_spelled: Final = lru_cache(maxsize=4_096)(to_base64)
"""A hash in base64, cached: the proofs of one commit share most of their hashes."""


def receipt(index: int, proof: list[bytes], note: str) -> str:
    """Entry index, inclusion proof and checkpoint in one text (C2SP tlog-proof): enough to verify offline."""
    return "\n".join([RECEIPT_MARK, f"index {index}", *map(_spelled, proof), "", note])


class LogSigner:
    """The key and the origin of a log."""

    def __init__(self, private: Ed25519PrivateKey, origin: str) -> None:
        """Sign with ``private``, in the name of ``origin``."""
        self.private = private
        self.key = LogKey(origin, private.public_key().public_bytes_raw())

    def sign(self, size: int, root: bytes) -> str:
        """The signed checkpoint of a tree."""
        return sign(Checkpoint(self.key.name, size, root), self.private, self.key)


class RotatingSigner(LogSigner):
    """Both keys of a log that replaces its key: each signs the checkpoint that ends with the rotation.

    Where the rotation has a window, both sign those of its sizes too.
    """

    def __init__(self, old: LogSigner, private: Ed25519PrivateKey, last: int | None = None) -> None:
        """Sign with the old key, up to the size ``last`` if there is one, and with the new one."""
        super().__init__(private, old.key.name)
        self._old, self._last = old, last

    def sign(self, size: int, root: bytes) -> str:
        """The checkpoint of a tree with two signatures, the old key's first; by the new key alone after the window."""
        note = super().sign(size, root)
        if self._last is not None and size > self._last:
            return note
        signature = note.rpartition("\n\n")[2]
        return f"{self._old.sign(size, root)}{signature}"
