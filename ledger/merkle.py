"""The Merkle tree of RFC 9162, section 2.1, over the exact stored bytes of entries.

Complete subtrees are kept as nodes ``(level, position)``: level 0 holds leaf hashes, and the node at level L
and position P covers the leaves P·2^L to (P + 1)·2^L - 1. A proof reads about log2(n) of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

HASH_BYTES: Final = 32
EMPTY_ROOT: Final = hashlib.sha256(b"").digest()
Read = Callable[[int, int], bytes]
"""The hash of the complete subtree at (level, position)."""


def leaf_hash(entry: bytes) -> bytes:
    """SHA-256(0x00 || entry)."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """SHA-256(0x01 || left || right)."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def append(size: int, leaf: bytes, read: Read) -> list[tuple[int, int, bytes]]:
    """The nodes that a leaf hash appended at index ``size`` completes, itself first."""
    made, level, position = [(0, size, leaf)], 0, size
    while position & 1:
        leaf = node_hash(read(level, position - 1), leaf)
        level, position = level + 1, position >> 1
        made.append((level, position, leaf))
    return made


def root(size: int, read: Read) -> bytes:
    """The tree hash of the first ``size`` leaves (section 2.1.1)."""
    return _range(0, size, read) if size else EMPTY_ROOT


def inclusion_proof(index: int, size: int, read: Read) -> list[bytes]:
    """The audit path of a leaf (section 2.1.3.1), lowest first. Raises: ValueError, unless index < size."""
    if not 0 <= index < size:
        raise ValueError(f"index {index} is not in a tree of {size}")
    path, low, high = [], 0, size
    while high - low > 1:
        middle = low + _split(high - low)
        if index < middle:
            path.append(_range(middle, high, read))
            high = middle
        else:
            path.append(_range(low, middle, read))
            low = middle
    return path[::-1]


def consistency_proof(old: int, size: int, read: Read) -> list[bytes]:
    """That the first ``old`` leaves have not changed (section 2.1.4.1). Raises: ValueError, unless 0 < old <= size."""
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


def verify_inclusion(leaf: bytes, index: int, size: int, proof: list[bytes], expected: bytes) -> bool:
    """Whether the proof leads from the leaf hash to the root (section 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    fn, sn, at = index, size - 1, leaf
    for sibling in proof:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            at = node_hash(sibling, at)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            at = node_hash(at, sibling)
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and at == expected


def verify_consistency(old: int, size: int, proof: list[bytes], old_root: bytes, new_root: bytes) -> bool:
    """Whether the proof leads from the old root to the new one (section 2.1.4.2)."""
    if not 0 < old <= size:
        return False
    if old == size:
        return not proof and old_root == new_root
    steps = [old_root, *proof] if old & (old - 1) == 0 else proof
    if not steps:
        return False
    fn, sn = old - 1, size - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    first = second = steps[0]
    for sibling in steps[1:]:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            first, second = node_hash(sibling, first), node_hash(sibling, second)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            second = node_hash(second, sibling)
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and first == old_root and second == new_root


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
