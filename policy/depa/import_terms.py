"""The terms of an import that neither DEPA file has: the Level, the number of records and of runs, the time."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

RELATION: Final = "REPLACE_SPECIAL"
"""Losses are reported for zero-out neighbours, the ledger's default."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What the importer states.

    Attributes:
        now: Unix milliseconds.
        level: the sensitivity Level the datasets have; 1 unless an SRO sets another.
        records: how many records the training stages train on, after joins and splits; None if unknown.
        rows: the bound that the TDPs declare on the rows of one data principal; None if they declare none.
        runs: how many runs the contract is taken to allow: its text allows one.
        version: of the contract as our document; an amendment of one on record is the next.
        budget: the ε of a partition that runs are counted against; the contract's least ε if None.
    """

    now: int
    level: int = 1
    records: int | None = None
    rows: int | None = None
    runs: int = 1
    version: int = 1
    budget: Fraction | None = None
