"""The Merkle tree of RFC 9162, section 2.1, over the exact stored bytes of entries: growing, roots and proofs.

Complete subtrees are stored as nodes ``(level, position)``: level 0 holds leaf hashes, and the node at level L
and position P covers the leaves P·2^L to (P + 1)·2^L - 1. A proof reads about log2(n) of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Self

from ledger.verifier import EMPTY_ROOT, leaf_hash, node_hash

Read = Callable[[int, int], bytes]
"""The hash of the complete subtree at (level, position)."""


def append(size: int, leaf: bytes, read: Read) -> list[tuple[int, int, bytes]]:
    """The nodes that a leaf hash appended at index ``size`` completes, itself first."""
    made, level, position = [(0, size, leaf)], 0, size
    while position & 1:
        leaf = node_hash(read(level, position - 1), leaf)
        level, position = level + 1, position >> 1
        made.append((level, position, leaf))
    return made


def extend(size: int, leaves: list[bytes], edge: Mapping[int, bytes]) -> list[tuple[int, list[bytes]]]:
    """The nodes that many leaf hashes complete, a level at a time: the first one's position, and their hashes.

    Args:
        size: of the tree so far.
        edge: the newest complete node of each level that has any.
    """
    made, first, values = list[tuple[int, list[bytes]]](), size, leaves
    while values:
        made.append((first, values))
        pairs = [edge[len(made) - 1], *values] if first & 1 else values
        first >>= 1
        values = [node_hash(left, right) for left, right in zip(pairs[::2], pairs[1::2], strict=False)]
    return made


def root(size: int, read: Read) -> bytes:
    """The tree hash of the first ``size`` leaves (section 2.1.1)."""
    return _range(0, size, read) if size else EMPTY_ROOT


def inclusion_proof(index: int, size: int, read: Read, border: dict[int, bytes] | None = None) -> list[bytes]:
    """The audit path of a leaf (section 2.1.3.1), lowest first.

    Args:
        border: hashes of the incomplete subtrees at the right edge of a tree of this size, by level: filled when they
            are needed, so that several proofs share them.

    Raises:
        ValueError: unless index < size.
    """
    if not 0 <= index < size:
        raise ValueError(f"index {index} is not in a tree of {size}")
    border = {} if border is None else border
    path, level, position, last = list[bytes](), 0, index, size - 1
    while last:
        if position & 1:
            path.append(read(level, position - 1))
        elif (position + 2) << level <= size:
            path.append(read(level, position + 1))
        elif position < last:
            if level not in border:
                border[level] = _range((position + 1) << level, size, read)
            path.append(border[level])
        level, position, last = level + 1, position >> 1, last >> 1
    return path


def consistency_proof(old: int, size: int, read: Read) -> list[bytes]:
    """The consistency proof from ``old`` to ``size`` (section 2.1.4.1). Raises: ValueError, unless 0 < old <= size."""
    if not 0 < old <= size:
        raise ValueError(f"a tree of {size} does not extend one of {old}")
    path, low, high, whole = [], 0, size, True
    while old != high:
        middle = low + _split(high - low)
        if old <= middle:
            path.append(_range(middle, high, read))
            high = middle
        else:
            path.append(_range(low, middle, read))
            low, whole = middle, False
    if not whole:
        path.append(_range(low, high, read))
    return path[::-1]


class CompactRange:
    """A tree grown leaf by leaf that holds only its right edge: log2(n) hashes, however long the log."""

    def __init__(self) -> None:
        """An empty tree."""
        self.size = 0
        self._newest: dict[int, tuple[int, bytes]] = {}

    @classmethod
    def resumed(cls, size: int, read: Read) -> Self:
        """A tree of ``size`` leaves, from the hashes of its largest complete subtrees, which its root is made of."""
        tree = cls()
        tree.size = size
        for level in range(size.bit_length()):
            if size >> level & 1:
                position = (size >> level) - 1
                tree._newest[level] = position, read(level, position)
        return tree

    @property
    def nodes(self) -> dict[tuple[int, int], bytes]:
        """The hashes that are held, by level and position."""
        return {(level, position): value for level, (position, value) in self._newest.items()}

    def append(self, entry: bytes) -> list[tuple[int, int, bytes]]:
        """Add an entry's bytes; returns the nodes (level, position, hash) that it completes, lowest first."""
        made = append(self.size, leaf_hash(entry), self._read)
        for level, position, value in made:
            self._newest[level] = position, value
        self.size += 1
        return made

    def root(self) -> bytes:
        """The root of all entries so far (section 2.1.1)."""
        return root(self.size, self._read)

    def _read(self, level: int, position: int) -> bytes:
        newest, value = self._newest[level]
        assert newest == position, "only the right edge is ever read"
        return value


def _split(width: int) -> int:
    """The largest power of two smaller than ``width``."""
    return 1 << (width - 1).bit_length() - 1


def _range(low: int, high: int, read: Read) -> bytes:
    width = high - low
    if width & (width - 1) == 0:
        level = width.bit_length() - 1
        return read(level, low >> level)
    middle = low + _split(width)
    return node_hash(_range(low, middle, read), _range(middle, high, read))
