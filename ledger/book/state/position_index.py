"""Where in the log something is named: 16 bytes of memory for each place, however long the names are.

A name is kept as the first 8 bytes of its SHA-256, beside the position of the entry that names it. So an answer has no
gaps: a name without a digest here is named by no entry. It may have a position too many, as two names can have the same
8 bytes, by chance or made so on purpose (2^32 trials). The caller therefore reads the entry at each position, checks
it against the root, and looks for the name in it: the entry decides, and equal digests cost one more read and nothing
else. That is why the digest needs no secret key, and is the same in every process.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from sys import byteorder
from threading import Lock
from typing import Final, Self

from ledger.state_tree.journal import name_digest

_SHARD_BITS: Final = 12
"""Sorted arrays by the first bits of a digest: 244 digests each at 10^6, so that to insert one moves 4 kB at most."""


class PositionIndex:
    """Names to log positions, in order of position; a name may have several. One thread adds, any may ask."""

    def __init__(self) -> None:
        """Begin empty."""
        self._shards: dict[int, tuple[array[int], array[int]]] = {}
        self._lock = Lock()
        self._count = 0

    @classmethod
    def of(cls, places: Iterable[bytes]) -> Self:
        """An index of many names at once, each given as its digest and its position, 8 bytes each."""
        index, numbers = cls(), array("Q", b"".join(sorted(places)))
        if byteorder == "little":
            numbers.byteswap()
        digests, positions = numbers[::2], numbers[1::2]
        index._count, first = len(digests), 0
        while first < len(digests):
            shard = digests[first] >> 64 - _SHARD_BITS
            before = bisect_left(digests, shard + 1 << 64 - _SHARD_BITS, first)
            index._shards[shard] = digests[first:before], positions[first:before]
            first = before
        return index

    def __len__(self) -> int:
        """How many places are noted."""
        return self._count

    def add(self, name: str, position: int) -> None:
        """Note that the entry at ``position`` names it; positions are added in increasing order."""
        digest = digest_of(name)
        with self._lock:
            shard = self._shards.get(digest >> 64 - _SHARD_BITS)
            if shard is None:
                shard = self._shards[digest >> 64 - _SHARD_BITS] = array("Q"), array("Q")
            digests, positions = shard
            at = bisect_right(digests, digest)
            digests.insert(at, digest)
            positions.insert(at, position)
            self._count += 1

    def positions(self, name: str) -> list[int]:
        """Every position whose entry names it, and perhaps others; empty if no entry does."""
        digest = digest_of(name)
        with self._lock:
            shard = self._shards.get(digest >> 64 - _SHARD_BITS)
            if shard is None:
                return []
            digests, positions = shard
            first = bisect_left(digests, digest)
            if first == len(digests) or digests[first] != digest:
                return []
            return positions[first : bisect_right(digests, digest, first)].tolist()

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Every digest with its position, in order of both; nothing may be added meanwhile."""
        for _, (digests, positions) in sorted(self._shards.items()):
            yield from zip(digests, positions, strict=True)


@lru_cache(maxsize=4_096)
def digest_of(name: str) -> int:
    """The first 8 bytes of a name's SHA-256, as a number."""
    return int.from_bytes(name_digest(name))
