"""How well models did on public data at an ε of their own: what an ε may buy, beside what a planned run would reveal.

Means of five runs of this project's training, each charged in a book of its own; docs/training.md says how.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final, NamedTuple

from api.console.frame import cells
from api.console.frame.tables import Table


class PublicResult(NamedTuple):
    """Several runs on one public data set: the share of its test records that they got right, on average."""

    data: str
    epsilon: Fraction
    delta: Fraction
    right: Fraction
    runs: int


RESULTS: Final = (
    PublicResult("Adult (census)", Fraction(1), Fraction(1, 100_000), Fraction(846_264, 1_000_000), 5),
    PublicResult("Fashion-MNIST", Fraction(3), Fraction(1, 100_000), Fraction(9009, 10_000), 5),
    PublicResult("MNIST", Fraction(1), Fraction(1, 100_000), Fraction(98_496, 100_000), 5),
    PublicResult("MNIST", Fraction(3), Fraction(1, 100_000), Fraction(98_834, 100_000), 5),
)


def public_results() -> Table:
    """They as rows, the least ε first."""
    rows = tuple(
        (
            cells.text(result.data),
            cells.loss(result.epsilon),
            cells.loss(result.delta),
            cells.text(f"{float(100 * result.right):.1f} %"),
            cells.count(result.runs),
        )
        for result in sorted(RESULTS, key=lambda result: (result.epsilon, result.data))
    )
    columns = ("Public data", "ε", "at δ", "Test records that are right, on average", "Runs")
    return Table("public", "What models reached at such an ε on public data", columns, rows)
