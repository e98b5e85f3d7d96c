"""A tree grown leaf by leaf, holding only its right edge: log2(n) hashes, however long the log."""

from __future__ import annotations

from ledger.log import merkle
from ledger.verifier import leaf_hash


class Frontier:
    """The newest complete subtree of every level; enough to append, and for the root."""

    def __init__(self) -> None:
        """An empty tree."""
        self.size = 0
        self._newest: dict[int, tuple[int, bytes]] = {}

    def append(self, entry: bytes) -> list[tuple[int, int, bytes]]:
        """Add an entry's bytes; returns the nodes (level, position, hash) that it completes, lowest first."""
        made = merkle.append(self.size, leaf_hash(entry), self._read)
        for level, position, value in made:
            self._newest[level] = position, value
        self.size += 1
        return made

    def root(self) -> bytes:
        """The root of what was appended (RFC 9162, section 2.1.1)."""
        return merkle.root(self.size, self._read)

    def _read(self, level: int, position: int) -> bytes:
        newest, value = self._newest[level]
        if newest != position:
            raise AssertionError("only the right edge is ever read")
        return value
