"""What a plan costs when nobody has asked before, against the same question asked again."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant
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


@pytest.mark.parametrize("plan", [("1/186", "0.6531", 186), ("8/1875", "1.1", 1_170)], ids=["depa-covid", "mnist"])
def test_the_epsilon_of_a_new_plan(benchmark: BenchmarkFixture, plan: tuple[str, str, int]) -> None:
    """A plan that nobody has asked for, against dp_accounting's own accountant at its own grid."""
    probability, noise, steps = Fraction(plan[0]), Fraction(plan[1]), plan[2]
    made = 0
    reported: dict[PoissonGaussian, float] = {}

    def fresh() -> PoissonGaussian:
        nonlocal made
        made += 1
        return PoissonGaussian(probability, noise + Fraction(made, 10**6), steps)

    def theirs(mechanism: PoissonGaussian) -> None:
        accountant = PLDAccountant(NeighboringRelation.REPLACE_SPECIAL)
        step = PoissonSampledDpEvent(float(mechanism.probability), GaussianDpEvent(float(mechanism.noise_multiplier)))
        accountant.compose(step, steps)
        reported[mechanism] = accountant.get_epsilon(float(DELTA))

    compare(
        benchmark,
        Side("the ε of a new plan", 1, fresh, lambda plan: reported_epsilon(plan, DELTA, "REPLACE_SPECIAL")),
        Side("dp_accounting's PLDAccountant", 1, fresh, theirs),
    )
    assert all(
        float(reported_epsilon(one, DELTA, "REPLACE_SPECIAL")) == pytest.approx(reported[one], rel=0.01)
        for one in reported
    )
