"""A small log made in memory, for tests that check its proofs."""

from __future__ import annotations

import base64

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger.log import merkle
from ledger.log.checkpoint import receipt, sign
from ledger.verifier import Checkpoint, LogKey, WitnessKey, leaf_hash

ORIGIN = "epsilon.example/ledger"
PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes([1]) * 32)
KEY = LogKey(ORIGIN, PRIVATE.public_key().public_bytes_raw())


class Log:
    """Entries, with the nodes kept as the book keeps them."""

    def __init__(self, entries: list[bytes]) -> None:
        self.entries = entries
        self.nodes: dict[tuple[int, int], bytes] = {}
        for size, entry in enumerate(entries):
            for level, position, value in merkle.append(size, leaf_hash(entry), self.read):
                self.nodes[level, position] = value

    def read(self, level: int, position: int) -> bytes:
        """The hash of a complete subtree."""
        return self.nodes[level, position]

    def checkpoint(self, size: int) -> Checkpoint:
        """The head of the first entries."""
        return Checkpoint(ORIGIN, size, merkle.root(size, self.read))

    def note(self, size: int) -> str:
        """That head, signed."""
        return sign(self.checkpoint(size), PRIVATE)

    def receipt(self, index: int, size: int, note: str | None = None) -> str:
        """The receipt of one entry under one checkpoint."""
        return receipt(index, merkle.inclusion_proof(index, size, self.read), note or self.note(size))

    def consistency(self, old: int, size: int) -> list[bytes]:
        """The proof that the log grew."""
        return merkle.consistency_proof(old, size, self.read)


def log_of(size: int) -> Log:
    """A log of that many entries."""
    return Log([f"entry {place}".encode() for place in range(size)])


class Cosigner:
    """A witness's key, for tests that need cosignatures and no witness."""

    def __init__(self, name: str, seed: int) -> None:
        self.private = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
        self.key = WitnessKey(name, self.private.public_key().public_bytes_raw())

    def line(self, note: str, time: int = 1_679_315_147) -> str:
        """The cosignature line over a signed note's text."""
        text = note.rpartition("\n\n")[0] + "\n"
        signature = self.private.sign(f"cosignature/v1\ntime {time}\n{text}".encode())
        blob = self.key.id + time.to_bytes(8, "big") + signature
        return f"— {self.key.name} {base64.b64encode(blob).decode()}\n"
