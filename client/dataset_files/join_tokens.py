"""Join tokens: by which a clean room joins the tables of several providers without learning which person a row is of.

A record's token is the HMAC-SHA-256, under a key that the providers of a join share and give no one else, of ``join``,
a line feed, and the RFC 8785 JSON of the list of its join columns as text. Providers agree beforehand how a column is
spelled: the same person spelled otherwise is another token, and is joined with no record.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

JOIN: Final = "join"
"""The array of a sealed file that holds the tokens."""
TOKEN_BYTES: Final = 32
ROWS_MAX: Final = 1_024
"""Rows of one person in a table, at most."""


class JoinTokens:
    """The tokens of a table's records, which counts how many records each person has."""

    def __init__(self, key: bytes, rows_max: int = 1) -> None:
        """None yet.

        Args:
            key: 32 bytes that every provider of the join has.
            rows_max: how many records one person may have.
        """
        self._key, self._rows_max = key, rows_max
        self._seen: Counter[bytes] = Counter()

    def of(self, rows: Sequence[Sequence[str]], where: str, first: int) -> NDArray[np.uint8]:
        """The tokens of some records, shape (records, 32).

        Args:
            rows: each record's join columns as text.
            where: the file; ``first`` is the number of its record that comes first.

        Raises:
            Malformed: naming the record, if a person has more than ``rows_max`` of them.
        """
        tokens = [hmac.digest(self._key, b"join\n" + c.dump([*cells]), "sha256") for cells in rows]
        for place, token in enumerate(tokens):
            self._seen[token] += 1
            if self._seen[token] > self._rows_max:
                bound = "another record has" if self._rows_max == 1 else f"{self._rows_max} other records have"
                rule = f"record {first + place} is of a person that {bound}: a join takes {self._rows_max} of each"
                raise Malformed(where, rule)
        return np.frombuffer(b"".join(tokens), np.uint8).reshape(len(tokens), TOKEN_BYTES)
