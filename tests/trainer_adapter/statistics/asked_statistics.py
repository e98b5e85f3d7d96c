"""Statistics of every kind over a few columns, and those columns as a test makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ledger.mechanisms import statistics as s

ADDED = "ADD_OR_REMOVE_ONE"
ONE = Fraction(1)
AGE = s.ClippedColumn("inputs[0]", s.Coordinate(-1), s.Coordinate(3))
PAY = s.ClippedColumn("inputs[1]", s.Coordinate(2), s.Coordinate(5))
CANDIDATES = tuple(map(s.Coordinate, (-1, 0, 1, 2)))


def each(**noise: Fraction) -> tuple[s.Statistic, ...]:
    """One of each kind but the quantile, with this ε or ρ."""
    known: Any = noise or {"epsilon": ONE}
    return (
        s.Count(name="count", **known),
        s.Histogram(name="histogram", column="inputs[0]", edges=tuple(map(s.Coordinate, (0, 1, 2))), **known),
        s.Categories(name="categories", column="targets", values=(2, 0, -1), **known),
        s.ClippedSum(name="sum", columns=(AGE, PAY), **known),
        s.Moments(name="moments", columns=(AGE, PAY), **known),
        s.ConfusionMatrix(name="matrix", classes=2, predicted="inputs[1]", truth="targets", **known),
        s.RocCurve(name="roc", buckets=4, score="inputs[0]", truth="targets", **known),
        s.SquaredError(name="error", bound=Fraction(3), predicted="inputs[1]", truth="targets", **known),
    )


def quantile(level: Fraction, epsilon: Fraction = ONE) -> s.Quantile:
    """A quantile of the first column."""
    return s.Quantile(name="quantile", epsilon=epsilon, column="inputs[0]", level=level, candidates=CANDIDATES)


@dataclass(frozen=True)
class Rows:
    """Records as rows of three numbers: two inputs and a target."""

    rows: Sequence[tuple[float, float, float]]

    @property
    def records(self) -> int:
        """How many there are."""
        return len(self.rows)

    def values(self, column: str) -> NDArray[np.float64]:
        """The numbers of one column."""
        place = {"inputs[0]": 0, "inputs[1]": 1, "targets": 2}[column]
        return np.array([row[place] for row in self.rows], dtype=np.float64)
