"""What a plan costs when nobody has asked before, against the same question asked again."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from ledger.accounting.epsilon_report import report_epsilon, reported_epsilon
from ledger.filters import Opening
from ledger.filters.renyi import Renyi
from ledger.mechanisms.loss import Segment
from ledger.mechanisms.mechanism import PoissonGaussian
from tests.bench.compare import Side, compare

pytestmark = pytest.mark.bench

DELTA: Final = Fraction(1, 100_000)
ASKED_AGAIN: Final = 2_000


@pytest.mark.parametrize("steps", [100, 10_000])
def test_pricing_a_plan(benchmark: BenchmarkFixture, steps: int) -> None:
    """Price per order and ε told: both are slow once per plan and kept."""
    rule = Renyi.choose(Opening(DELTA, (Fraction(6), Fraction(5)), None))
    made: list[PoissonGaussian] = []

    def fresh() -> PoissonGaussian:
        made.append(PoissonGaussian(Fraction(1, 16), Fraction(20_000 + len(made), 10_000), steps))
        return made[-1]

    def ask(mechanism: PoissonGaussian) -> tuple[tuple[Segment, ...], Fraction]:
        return rule.segments(mechanism, "REPLACE_SPECIAL"), reported_epsilon(mechanism, DELTA, "REPLACE_SPECIAL")

    misses = report_epsilon.cache_info().misses
    known = fresh()
    answer = ask(known)

    def again(mechanism: PoissonGaussian) -> None:
        assert all(ask(mechanism) == answer for _ in range(ASKED_AGAIN))

    compare(
        benchmark,
        Side(f"plan of {steps} steps priced for the first time", 1, fresh, ask),
        Side("the same again", ASKED_AGAIN, lambda: known, again),
    )
    assert report_epsilon.cache_info().misses - misses == len(made)
