r"""Checkpoints and receipts: C2SP tlog-checkpoint in a signed-note (Ed25519), and tlog-proof.

    epsilon.example/ledger
    18
    nVb1...=

    — epsilon.example/ledger 8J3k...==

The key id is the first four bytes of SHA-256(name || "\n" || 0x01 || public key).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ledger.malformed import Malformed
from ledger.merkle import HASH_BYTES, leaf_hash, verify_inclusion

NOTE_BYTES_MAX: Final = 16_384
PROOF_HASHES_MAX: Final = 64
_ED25519: Final = b"\x01"
_SIZE = re.compile(r"(0|[1-9][0-9]{0,15})\Z")
_ORIGIN = re.compile(r"[!-*,-~]{1,200}\Z")
_MARK: Final = "c2sp.org/tlog-proof@v1"


@dataclass(frozen=True, slots=True)
class LogKey:
    """The public key of a log under its origin, as the ``vkey`` that a verifier is given."""

    origin: str
    public: bytes

    @property
    def id(self) -> bytes:
        """The four bytes that a signature line starts with."""
        return hashlib.sha256(self.origin.encode() + b"\n" + _ED25519 + self.public).digest()[:4]

    @property
    def vkey(self) -> str:
        """``origin+hex id+base64(type || key)``."""
        return f"{self.origin}+{self.id.hex()}+{_base64(_ED25519 + self.public)}"

    @classmethod
    def parse(cls, vkey: str) -> LogKey:
        """Read a ``vkey``; the exact inverse of :attr:`vkey`. Raises: Malformed."""
        parts = vkey.split("+", 2)
        if len(parts) != 3 or not _ORIGIN.match(parts[0]):
            raise Malformed("vkey", "must be 'origin+id+key'")
        raw = _unbase64(parts[2], "vkey")
        key = cls(parts[0], raw[1:])
        if raw[:1] != _ED25519 or len(raw) != 33 or key.vkey != vkey:
            raise Malformed("vkey", "is not an Ed25519 key under its own id")
        return key


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The log's claim: at this size the tree has this root."""

    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        """The three lines that are signed."""
        return f"{self.origin}\n{self.size}\n{_base64(self.root)}\n"

    def sign(self, private: Ed25519PrivateKey) -> str:
        """The signed note."""
        key = LogKey(self.origin, private.public_key().public_bytes_raw())
        signature = private.sign(self.text.encode())
        return f"{self.text}\n— {self.origin} {_base64(key.id + signature)}\n"

    @classmethod
    def open(cls, note: str, key: LogKey) -> Checkpoint:
        """Read a signed note and check the log's own signature; unknown keys are passed over.

        Raises:
            Malformed: if the note is not one, names another origin, or the log's signature is missing or wrong.
        """
        try:
            size = len(note.encode())
        except UnicodeEncodeError:
            raise Malformed("checkpoint", "is not UTF-8") from None
        if size > NOTE_BYTES_MAX:
            raise Malformed("checkpoint", "is too long")
        text, blank, signatures = note.partition("\n\n")
        text += "\n"
        lines = text.split("\n")
        if not blank or len(lines) < 4 or not signatures.endswith("\n"):
            raise Malformed("checkpoint", "is not a signed note")
        if lines[0] != key.origin:
            raise Malformed("checkpoint", f"is of the log {lines[0][:80]!r}, not {key.origin!r}")
        if not _SIZE.match(lines[1]):
            raise Malformed("checkpoint", "has no tree size on its second line")
        root = _unbase64(lines[2], "checkpoint")
        if len(root) != HASH_BYTES:
            raise Malformed("checkpoint", "has no root hash on its third line")
        _check_signature(text, signatures, key)
        return cls(lines[0], int(lines[1]), root)


def _check_signature(text: str, signatures: str, key: LogKey) -> None:
    found = False
    for line in signatures.removesuffix("\n").split("\n"):
        mark, _, rest = line.partition(" ")
        name, _, value = rest.partition(" ")
        if mark != "—":
            raise Malformed("checkpoint", "has a signature line that does not start with a dash")
        raw = _unbase64(value, "checkpoint")
        if name != key.origin or raw[:4] != key.id:
            continue
        try:
            Ed25519PublicKey.from_public_bytes(key.public).verify(raw[4:], text.encode())
        except InvalidSignature:
            raise Malformed("checkpoint", "bears a signature of the log's key that does not verify") from None
        found = True
    if not found:
        raise Malformed("checkpoint", "is not signed by the log's key")


def receipt(index: int, proof: list[bytes], note: str) -> str:
    """Entry index, inclusion proof and checkpoint in one text (C2SP tlog-proof): enough to verify offline."""
    return "\n".join([_MARK, f"index {index}", *(_base64(item) for item in proof), "", note])


def verify_receipt(text: str, entry: bytes, key: LogKey) -> tuple[int, Checkpoint]:
    """The entry's index and the checkpoint it is under. Raises: Malformed, if the receipt does not prove it."""
    head, blank, note = text.partition("\n\n")
    lines = head.split("\n")
    if not blank or lines[0] != _MARK or len(lines) < 2 or len(lines) > PROOF_HASHES_MAX + 2:
        raise Malformed("receipt", f"is not a {_MARK}")
    word, _, number = lines[1].partition(" ")
    if word != "index" or not _SIZE.match(number):
        raise Malformed("receipt", "has no index on its second line")
    checkpoint = Checkpoint.open(note, key)
    proof = [_unbase64(line, "receipt") for line in lines[2:]]
    if not verify_inclusion(leaf_hash(entry), int(number), checkpoint.size, proof, checkpoint.root):
        raise Malformed("receipt", f"does not prove the entry at index {number}")
    return int(number), checkpoint


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _unbase64(text: str, field: str) -> bytes:
    try:
        raw = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise Malformed(field, "holds something that is not base64") from None
    if _base64(raw) != text:
        raise Malformed(field, "holds base64 that is not in its one spelling")
    return raw
