"""The most steps that keep a budget, against every count beside it on each grid; and what another machine accepts."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from ledger.accounting import pld_counting
from ledger.accounting.pld_counting import COUNT_MAX, count_capacity, count_epsilon, count_keeps, estimate_count
from ledger.accounting.pld_mechanisms import repeated
from ledger.mechanisms.mechanism import PoissonGaussian

ZERO_OUT = "REPLACE_SPECIAL"
GRIDS = (1e-3, 1e-4)
STEP = PoissonGaussian(Fraction(1, 4), Fraction(4), 1)
LOUD = PoissonGaussian(Fraction(1, 2), Fraction(1, 100), 1)


def issued(step: PoissonGaussian, count: int, epsilon: Fraction) -> float:
    """The least δ that a number is issued by, of all grids."""
    found = (repeated(step, ZERO_OUT, count, interval) for interval in GRIDS)
    return min(float(one.issued(np.asarray([float(epsilon)]))[0]) for one in found)


@pytest.mark.parametrize(
    ("step", "epsilon", "delta", "least"),
    [
        (STEP, Fraction(1), Fraction(1, 1_000), 5),
        (PoissonGaussian(Fraction(1, 2), Fraction(1), 1), Fraction(1), Fraction(1, 1_000), 0),
        (PoissonGaussian(Fraction(1, 2), Fraction(1), 1), Fraction(2), Fraction(1, 25), 1),
        (PoissonGaussian(Fraction(1, 2), Fraction(1), 1), Fraction(3), Fraction(1, 25), 2),
    ],
)
def test_no_more_steps_are_issued_and_no_less(
    step: PoissonGaussian, epsilon: Fraction, delta: Fraction, least: int
) -> None:
    """The count found keeps δ with room for other machines, and one more does not."""
    count = count_capacity(step, epsilon, delta)
    assert count >= least
    assert count == 0 or issued(step, count, epsilon) <= float(delta)
    assert issued(step, count + 1, epsilon) > float(delta)
    assert count_keeps(step, epsilon, delta, count)


@pytest.mark.parametrize("count", [40])
def test_what_is_accepted_is_evaluated_once(count: int) -> None:
    """A δ that the curve just reaches is accepted, and nothing is issued by it; a hair less is not."""
    epsilon = Fraction(2)
    reached = min(repeated(STEP, ZERO_OUT, count, interval).delta(2.0) for interval in GRIDS)
    assert count_keeps(STEP, epsilon, Fraction(reached), count)
    assert not count_keeps(STEP, epsilon, Fraction(reached) * (1 - Fraction(1, 10**9)), count)
    assert count_capacity(STEP, epsilon, Fraction(reached)) == count - 1


def test_counts_end_at_a_thousand_millions() -> None:
    """Steps that lose hardly anything are so many by Rényi's bound; no grid could say it."""
    quiet = PoissonGaussian(Fraction(1, 10**9), Fraction(10**6), 1)
    for delta in (Fraction(1, 1_000), Fraction(1, 10**7)):
        assert count_capacity(quiet, Fraction(1), delta) == COUNT_MAX
        assert count_keeps(quiet, Fraction(1), delta, COUNT_MAX)
        assert not count_keeps(quiet, Fraction(1), delta, COUNT_MAX + 1)


def test_a_step_that_no_grid_holds_keeps_nothing() -> None:
    """Ten thousand nats: no count, and no ε."""
    assert count_capacity(LOUD, Fraction(1), Fraction(1, 1_000)) == 0
    assert not count_keeps(LOUD, Fraction(1), Fraction(1, 1_000), 1)
    assert count_epsilon(LOUD, 1, Fraction(1, 1_000)) is None


def test_an_epsilon_of_a_count_is_the_least_of_the_grids() -> None:
    """At which the count keeps δ."""
    for count in (1, 30):
        found = count_epsilon(STEP, count, Fraction(1, 1_000))
        assert found == Fraction(min(repeated(STEP, ZERO_OUT, count, interval).epsilon(0.001) for interval in GRIDS))


@pytest.mark.parametrize(
    "step",
    [
        PoissonGaussian(Fraction(1, 20), Fraction(2), 1),
        PoissonGaussian(Fraction(1, 4), Fraction(5), 1),
        PoissonGaussian(Fraction(1, 1_000), Fraction(7, 10), 1),
    ],
    ids=repr,
)
def test_an_estimate_is_near_and_not_above(step: PoissonGaussian) -> None:
    """A coarse grid says more loss than there is, by some hundredths where steps are tiny."""
    found, exact = (of(step, Fraction(2), Fraction(1, 1_000)) for of in (estimate_count, count_capacity))
    assert 0.95 * exact < found <= exact


def test_what_no_grid_holds_is_not_kept_and_has_no_epsilon() -> None:
    """A step of so little noise that its losses need more points than there may be."""
    assert not count_keeps(LOUD, Fraction(2), Fraction(1, 1_000), 1)
    assert count_epsilon(LOUD, 1, Fraction(1, 1_000)) is None


def test_nothing_is_issued_on_a_grid_that_another_machine_might_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the points of an issued grid only Rényi's bound counts; what was issued is still accepted."""
    step = PoissonGaussian(Fraction(1, 20), Fraction(17, 10), 1)
    count = count_capacity(step, Fraction(2), Fraction(1, 1_000))
    monkeypatch.setattr(pld_counting, "POINTS_ISSUED", 10)
    count_capacity.cache_clear()
    try:
        assert 0 < count_capacity(step, Fraction(2), Fraction(1, 1_000)) < count
    finally:
        count_capacity.cache_clear()
    assert count_keeps(step, Fraction(2), Fraction(1, 1_000), count)
