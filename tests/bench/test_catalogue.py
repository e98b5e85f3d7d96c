"""Opening a partition under ``catalogue``: prices for its kinds of steps are searched for, and corners offered."""

from __future__ import annotations

from fractions import Fraction
from itertools import count, islice
from time import process_time
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from ledger.filters import Opening
from ledger.filters.catalogue_prices import choose_prices, corners
from ledger.mechanisms.mechanism import Composed, PoissonGaussian
from tests.bench.compare import Side, compare

pytestmark = pytest.mark.bench

OPENED_S: Final = 5.0
"""Of one processor, for as many types as there may be."""
_NUMBERS: Final = count(1)
KINDS: Final = (
    PoissonGaussian(Fraction(1, 186), Fraction(6531, 10_000), 186),
    PoissonGaussian(Fraction(256, 60_000), Fraction(11, 10), 1_170),
    PoissonGaussian(Fraction(1, 100), Fraction(1), 500),
    PoissonGaussian(Fraction(1, 50), Fraction(3, 2), 400),
    PoissonGaussian(Fraction(1, 16), Fraction(4), 100),
    PoissonGaussian(Fraction(1, 1_000), Fraction(7, 10), 2_000),
    PoissonGaussian(Fraction(1), Fraction(20), 4),
    PoissonGaussian(Fraction(1, 10), Fraction(2), 20),
)


def opening(kinds: int, budget: tuple[Fraction, Fraction]) -> Opening:
    """For a load of so many kinds of steps, each with a noise that was never asked about."""
    number, (epsilon, delta) = next(_NUMBERS), budget
    load = Composed(
        tuple(
            PoissonGaussian(one.probability, one.noise_multiplier + Fraction(number, 10**6), one.steps)
            for one in islice(KINDS, kinds)
        )
    )
    return Opening(delta, (epsilon,), load, "REPLACE_SPECIAL")


@pytest.mark.parametrize(
    "budget", [(Fraction(3), Fraction(1, 1483)), (Fraction(8), Fraction(1, 100_000))], ids=["3", "8"]
)
@pytest.mark.parametrize("kinds", [1, 2, 8])
def test_a_partition_opens(benchmark: BenchmarkFixture, kinds: int, budget: tuple[Fraction, Fraction]) -> None:
    """Within 5 s of one processor, against one kind of steps: what each further kind costs."""
    reported = compare(
        benchmark,
        Side(
            f"opened for {kinds} kinds of steps, ε {budget[0]}",
            1,
            lambda: opening(kinds, budget),
            choose_prices,
            process_time,
        ),
        Side("for one", 1, lambda: opening(1, budget), choose_prices, process_time),
        3,
        limit=OPENED_S,
    )
    assert reported.within, reported.line


def test_prices_are_offered(benchmark: BenchmarkFixture) -> None:
    """Within the same time: the lines of eight kinds to choose from, against the one that opens without a choice."""
    budget = Fraction(8), Fraction(1, 100_000)
    reported = compare(
        benchmark,
        Side("prices offered for 8 kinds of steps, ε 8", 1, lambda: opening(8, budget), corners, process_time),
        Side("the best alone", 1, lambda: opening(8, budget), choose_prices, process_time),
        3,
        limit=OPENED_S,
    )
    assert reported.within, reported.line
