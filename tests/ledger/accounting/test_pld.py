"""The law of a privacy loss on its grid: its moments, its ends, and both orders of a pair."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from ledger.accounting.pld import POINTS_MAX, GridTooLarge, Moments, require_points
from ledger.accounting.pld_mechanisms import repeated
from ledger.mechanisms import mechanism as m

ZERO_OUT = "REPLACE_SPECIAL"


def test_moments_are_taken_at_twenty_orders_on_each_side() -> None:
    """In parts of one over the number of points; of nothing they are nothing."""
    law = np.array([0.5, 0.25, 0.25])
    found = Moments.of(law)
    orders = [sign * order / 3 for sign in (1, -1) for order in range(1, 21)]
    assert found.points == 3
    assert [order for order, _ in found.at] == orders
    for order, moment in found.at:
        assert moment == pytest.approx(math.log(sum(law[at] * math.exp(order * at) for at in range(3))), abs=1e-12)
    assert {moment for _, moment in Moments.of(np.zeros(4)).at} == {-math.inf}


@pytest.mark.parametrize(
    ("at", "count", "ends"),
    [
        # Chernoff: (count·moment + log(2/1e-15))/order, and log(2/1e-15) = 35.2319.
        (((10.0, 1.0),), 5, (0, 5)),
        (((0.5, 0.0),), 40, (0, 71)),
        (((-0.5, -20.0),), 4, (89, 400)),
        (((1.0, -math.inf), (-1.0, -math.inf)), 7, (0, 700)),
        (((1.0, -math.inf), (10.0, 1.0)), 5, (0, 5)),
        (((1.0, 10.0), (2.0, 10.0), (0.5, 10.0)), 5, (0, 43)),
    ],
)
def test_a_sum_lies_between_chernoffs_bounds(
    at: tuple[tuple[float, float], ...], count: int, ends: tuple[int, int]
) -> None:
    """The least of those above and the greatest of those below; what is no number bounds nothing."""
    assert Moments(101, at).ends(count) == ends


def test_a_grid_has_a_greatest_size() -> None:
    """What is no number is more than it."""
    require_points(POINTS_MAX)
    for points in (POINTS_MAX + 1, math.nan, math.inf):
        with pytest.raises(GridTooLarge):
            require_points(points)


def test_composition_keeps_count_of_steps_and_of_the_longest_grid() -> None:
    """Of one distribution with one order and one with both, either way round."""
    even = repeated(m.Laplace(Fraction(20)), ZERO_OUT, 1, 0.01)
    both = repeated(m.PoissonGaussian(Fraction(1, 2), Fraction(4), 1), ZERO_OUT, 1, 0.01)
    assert (len(even.laws), len(both.laws)) == (1, 2)
    for found in (even.compose(both), both.compose(even)):
        assert (len(found.laws), found.steps) == (2, 2)
        assert found.points == max(law.size + even.laws[0].size for law in both.laws)
        assert found.delta(0.0) <= even.delta(0.0) + both.delta(0.0)
    three = both.self_compose(3)
    assert (three.steps, both.self_compose(1)) == (3, both)
    assert three.points >= max(law.size for law in three.laws)
    assert three.compose(even).steps == 4


def test_the_epsilon_at_a_delta_is_where_the_curve_meets_it() -> None:
    """At a mean δ, at one above the curve, and at one below what is lost for sure."""
    found = repeated(m.BlackBox(Fraction(1, 1_000), Fraction(1, 2), ZERO_OUT), ZERO_OUT, 1, 0.01)
    for delta in (0.01, 0.1, 0.2):
        epsilon = found.epsilon(delta)
        assert found.delta(epsilon) <= delta < found.delta(epsilon - 1e-6)
    assert found.epsilon(0.9) == 0.0
    assert found.epsilon(0.000_9) == math.inf
    assert found.epsilon(0.0) == math.inf
