"""Tokens of records: join tokens, by which a clean room joins tables without learning which person a row is of.

A record's token is the HMAC-SHA-256, under a key that the providers of a join share and give no one else, of ``join``,
a line feed, and the RFC 8785 JSON of the list of its join columns as text in Unicode's form NFC. Providers agree
beforehand how a column is spelled: the same person spelled otherwise is another token, and is joined with no record.

Person tokens are the same of a record's identity, under a key that is drawn for one file and forgotten: they say which
records of that file are one person's, and nothing else.
"""

from __future__ import annotations

import hmac
import os
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from client.dataset_files.tokens.token_counts import TOKEN_BYTES, TokenCounts
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

JOIN: Final = "join"
"""The array of a sealed file that holds the tokens of a join."""
PERSON: Final = "person"
"""The array that holds the tokens of a file's own persons, where it has no tokens of a join."""
_OF_JOIN: Final = "a join takes {most} of each"
_OF_UNIT: Final = "leave it out, or name users, where the unit is the user and one may have more"


class PersonTokens:
    """The tokens of a table's records, which counts how many records each person has."""

    def __init__(self, key: bytes, rows_max: int = 1, *, joined: bool = True) -> None:
        """None yet.

        Args:
            key: 32 bytes that every provider of the join has.
            rows_max: how many records one person may have.
            joined: whether they are of a join; or of a file's own persons, for what an error advises.
        """
        self._key, self._rows_max = key, rows_max
        self._advice = _OF_JOIN.format(most=rows_max) if joined else _OF_UNIT
        self._counts, self._count = TokenCounts(), 0
        self._starts: list[tuple[int, str, int]] = []
        """Of each file: how many records came before it, its name, and the number of its first record."""

    @classmethod
    def of_file(cls) -> PersonTokens:
        """Of one file's persons, who have one record each, under a key of its own."""
        return cls(os.urandom(TOKEN_BYTES), joined=False)

    def of(self, persons: Sequence[bytes], where: str, first: int) -> NDArray[np.uint8]:
        """The tokens of the next records, shape (records, 32).

        Args:
            persons: what each record's person is.
            where: the file; ``first`` is the number of its record that comes first.

        Raises:
            OSError: of a temporary file.
        """
        tokens = b"".join(hmac.digest(self._key, person, "sha256") for person in persons)
        found = np.frombuffer(tokens, np.uint8).reshape(len(persons), TOKEN_BYTES)
        if not self._starts or self._starts[-1][1] != where:
            self._starts.append((self._count, where, first))
        self._count += len(persons)
        self._counts.add(found)
        return found

    def check(self) -> None:
        """Once all records have come: hold each person to ``rows_max`` of them.

        Raises:
            Malformed: naming the first record that is one too many.
            OSError: of a temporary file.
        """
        place = self._counts.excess(self._rows_max)
        if place is not None:
            start, where, first = self._starts[bisect_right(self._starts, place, key=lambda one: one[0]) - 1]
            bound = "another record has" if self._rows_max == 1 else f"{self._rows_max} other records have"
            raise Malformed(where, f"record {first + place - start} is of a person that {bound}: {self._advice}")


def join_person(cells: Sequence[str]) -> bytes:
    """What the person of a record is in a join, of its join columns as text."""
    return b"join\n" + c.dump([*cells])
