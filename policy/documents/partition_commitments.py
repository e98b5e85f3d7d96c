r"""Commitments to the records of a partition, by which a partition that holds old records is detected.

    b"epsilon-commitments/1\n" + 32 bytes that name the key + one 32-byte commitment a record, in rising order

A commitment is an HMAC-SHA-256 over a record's identity (or its privacy unit's), made by the provider with a key of
its own, the same for all its partitions, so that equal identities give equal commitments and no one
else can guess them; the key is named by the SHA-256 of its own HMAC of nothing. A partition's commitments are one or
more such documents. A record without a commitment cannot be detected.

Commitments to the persons of a stream's slice have the same form, with their own first line: one for each person that
the slice holds records of.

    b"epsilon-persons/1\n" + 32 bytes that name the key + one 32-byte commitment a person, in rising order
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise
from operator import lt
from struct import Struct
from typing import Final, Generic, TypeVar

from ledger.wire.malformed import Malformed

MAGIC: Final = b"epsilon-commitments/1\n"
PERSONS_MAGIC: Final = b"epsilon-persons/1\n"
SIZE: Final = 32
V = TypeVar("V")
_COMMITMENT: Final = Struct(f"{SIZE}s")


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored document, known by its digest; its bytes are fetched only when needed."""

    digest: str
    fetch: Callable[[], bytes] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Commitments:
    """The content of one document: its key, and the number of records; or of persons, if it commits to persons."""

    key: bytes
    count: int
    persons: bool = False


class _Kept(Generic[V]):
    """A cache by documents' digests, not by Stored, which would hold a reference to the state."""

    def __init__(self, most: int) -> None:
        self._most, self._found = most, dict[Hashable, V]()

    def get(self, key: Hashable, find: Callable[[], V]) -> V:
        """The cached value, else a new one. Raises: what computing it raises."""
        value = self._found.get(key)
        if value is None:
            if len(self._found) >= self._most:
                self._found.clear()
            value = self._found[key] = find()
        return value


# A stream of a thousand slices has thousands of documents, and each new slice is compared with all of them.
_READ: Final = _Kept[Commitments](65_536)
_OVERLAPS: Final = _Kept[int](65_536)
_BEYOND: Final = _Kept[int](64)
_UNIONS: Final = _Kept[frozenset[bytes]](4)


def read_commitments(stored: Stored) -> Commitments:
    """Read and check the order. Raises: Malformed."""
    return _READ.get(stored.digest, lambda: _read(stored.fetch()))


def _read(data: bytes) -> Commitments:
    persons = data.startswith(PERSONS_MAGIC)
    head = _head(data)
    body = len(data) - head
    if not (persons or data.startswith(MAGIC)) or body < SIZE or body % SIZE:
        raise Malformed("commitments", f"must be {MAGIC!r}, a key's name and commitments of {SIZE} bytes each")
    digests = [*_each(data)]
    if not all(map(lt, digests, digests[1:])):
        place = next(place for place, (earlier, then) in enumerate(pairwise(digests), 1) if not earlier < then)
        raise Malformed("commitments", f"do not rise at commitment {place}")
    return Commitments(data[head - SIZE : head], body // SIZE, persons)


def _head(data: bytes) -> int:
    """The length of the header before the first commitment."""
    return len(PERSONS_MAGIC if data.startswith(PERSONS_MAGIC) else MAGIC) + SIZE


def overlap(own: tuple[Stored, ...], other: Stored) -> int:
    """How many commitments of a document are among those of others."""
    key = _digests(own), other.digest
    return _OVERLAPS.get(key, lambda: len(_union(own).intersection(_each(other.fetch()))))


def repeated(own: tuple[Stored, ...]) -> int:
    """How many commitments occur more than once in these documents, counting every repetition."""
    return sum(read_commitments(document).count for document in own) - len(_union(own))


def persons_beyond(own: tuple[Stored, ...], slices: tuple[tuple[Stored, ...], ...], most: int) -> int:
    """How many persons of a slice are in ``most`` or more of these other slices already."""

    def count() -> int:
        mine, seen = _union(own), Counter[bytes]()
        for each in slices:
            seen.update(mine.intersection(_commitments(each)))
        return sum(1 for times in seen.values() if times >= most)

    return _BEYOND.get((_digests(own), tuple(map(_digests, slices)), most), count)


def _union(own: tuple[Stored, ...]) -> frozenset[bytes]:
    # At most a quarter of a million of 32 bytes each: a command names few documents, and a document is small.
    return _UNIONS.get(_digests(own), lambda: frozenset(_commitments(own)))


def _digests(documents: tuple[Stored, ...]) -> tuple[str, ...]:
    return tuple(document.digest for document in documents)


def _commitments(documents: tuple[Stored, ...]) -> Iterator[bytes]:
    return chain.from_iterable(_each(document.fetch()) for document in documents)


def _each(data: bytes) -> Iterator[bytes]:
    # No Python loop over single commitments: a partition is compared with millions.
    return chain.from_iterable(_COMMITMENT.iter_unpack(memoryview(data)[_head(data) :]))
