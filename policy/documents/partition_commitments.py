r"""Commitments to the records of a partition: what lets a partition that holds old records be noticed.

    b"epsilon-commitments/1\n" + 32 bytes that name the key + one 32-byte commitment a record, in rising order

A commitment is an HMAC-SHA-256 over a record's identity (or its privacy unit's), made by the provider with a key of
its own that it keeps, the same for all its partitions, so that equal identities give equal commitments and no one
else can guess them; the key is named by the SHA-256 of its own HMAC of nothing. A partition's commitments are one or
more such documents. What was never committed to cannot be noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from ledger.wire.malformed import Malformed

MAGIC: Final = b"epsilon-commitments/1\n"
SIZE: Final = 32
_HEAD: Final = len(MAGIC) + SIZE


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored document, known by its digest; its bytes are fetched only where they are needed."""

    digest: str
    fetch: Callable[[], bytes] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Commitments:
    """What one document says: by which key, and how many records."""

    key: bytes
    count: int


@lru_cache(maxsize=1_024)
def read_commitments(stored: Stored) -> Commitments:
    """Read and check the order. Raises: Malformed."""
    data = stored.fetch()
    body = len(data) - _HEAD
    if not data.startswith(MAGIC) or body < SIZE or body % SIZE:
        raise Malformed("commitments", f"must be {MAGIC!r}, a key's name and commitments of {SIZE} bytes each")
    last = b""
    for place, one in enumerate(_each(data)):
        if one <= last:
            raise Malformed("commitments", f"do not rise at commitment {place}")
        last = one
    return Commitments(data[len(MAGIC) : _HEAD], body // SIZE)


@lru_cache(maxsize=65_536)
def overlap(own: tuple[Stored, ...], other: Stored) -> int:
    """How many commitments of a document are among those of others; kept once counted."""
    mine = _union(own)
    return sum(1 for commitment in _each(other.fetch()) if commitment in mine)


def repeated(own: tuple[Stored, ...]) -> int:
    """How many commitments occur more than once in these documents, counting every repetition."""
    return sum(read_commitments(one).count for one in own) - len(_union(own))


@lru_cache(maxsize=4)
def _union(own: tuple[Stored, ...]) -> frozenset[bytes]:
    # At most a quarter of a million of 32 bytes each: a command names few documents, and a document is small.
    return frozenset(commitment for one in own for commitment in _each(one.fetch()))


def _each(data: bytes) -> Iterator[bytes]:
    return (data[at : at + SIZE] for at in range(_HEAD, len(data), SIZE))
