"""The law of a privacy loss on its grid: its moments, its ends, and both orders of a pair."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld.pld_pmf import DensePLDPmf

from ledger.accounting.pld import (
    NOISE,
    NOISE_PER_STEP,
    PART_ISSUED,
    POINTS_MAX,
    Distribution,
    GridTooLarge,
    Moments,
    require_points,
)
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
    assert three.points == max(law.size for law in three.laws)
    assert three.compose(even).steps == 4


def test_composition_remembers_the_longest_grid_on_the_way() -> None:
    """Of either; what is issued has eight times the noise, and a part more for each step."""
    one = Distribution((law_of([0.25, 0.25, 0.5], 0.01),), 7, 3)
    other = Distribution((law_of([0.25, 0.25, 0.5], 0.01),), 5, 1_000)
    assert one.compose(other).points == other.compose(one).points == 1_000
    epsilons = np.array([0.0, 0.3])
    assert np.array_equal(one.issued(epsilons), one.curve(epsilons) * (1 + PART_ISSUED * 7) + 7 * one.noise)


def test_the_epsilon_at_a_delta_is_where_the_curve_meets_it() -> None:
    """At a mean δ, at one above the curve, and at one below what is lost for sure."""
    found = repeated(m.BlackBox(Fraction(1, 1_000), Fraction(1, 2), ZERO_OUT), ZERO_OUT, 1, 0.01)
    for delta in (0.01, 0.1, 0.2):
        epsilon = found.epsilon(delta)
        assert found.delta(epsilon) <= delta < found.delta(epsilon - 1e-6)
    assert found.epsilon(0.9) == 0.0
    assert found.epsilon(0.000_9) == math.inf
    assert found.epsilon(0.0) == math.inf


def law_of(probabilities: list[float], infinite: float, lowest: int = -1) -> DensePLDPmf:
    """Losses half a nat apart."""
    return DensePLDPmf(0.5, lowest, np.array(probabilities), infinite, True)  # noqa: FBT003 - the library's


@pytest.mark.parametrize(
    ("laws", "steps", "lost"),
    [
        ((law_of([0.25, 0.25, 0.5], 0.0),), 1, 0.0),
        ((law_of([0.25, 0.25, 0.5], 0.0),), 10**6, 0.0),
        # What came out negative counts twice, and what is missing once; the greater of both orders.
        ((law_of([-0.01, 0.51, 0.5], 0.0),), 1, 0.02),
        ((law_of([0.5, 0.51], -0.01),), 1, 0.02),
        ((law_of([0.5, 0.4], 0.0),), 1, 0.1),
        ((law_of([-0.01, 0.5, 0.4], 0.0),), 1, 0.13),
        ((law_of([-0.01, 0.51, 0.5], 0.0), law_of([0.5, 0.4], 0.0)), 1, 0.1),
        ((law_of([0.6, 0.6], 0.0),), 1, 0.0),
    ],
)
def test_the_noise_is_what_rounding_may_have_taken(laws: tuple[DensePLDPmf, ...], steps: int, lost: float) -> None:
    """A part in all, a part for each step, and what the law itself shows."""
    found = Distribution(laws, steps, 3).noise
    assert found == pytest.approx(NOISE + NOISE_PER_STEP * steps + lost, rel=1e-12)


def test_what_never_loses_has_no_epsilon() -> None:
    """No loss is above 0."""
    found = Distribution((law_of([0.5, 0.5], 0.0),), 1, 2)
    assert found.epsilon(0.1) == 0.0
    assert found.delta(0.0) == found.noise


def test_a_loss_whose_exponential_is_no_float_has_no_epsilon() -> None:
    """Nothing is proven of it, and no less is told; without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert repeated(m.Pure(Fraction(200), ZERO_OUT), ZERO_OUT, 4, 1.0).epsilon(1e-3) == math.inf
        assert repeated(m.Pure(Fraction(200), ZERO_OUT), ZERO_OUT, 3, 1.0).epsilon(1e-3) == pytest.approx(600, abs=1)


def test_a_sparse_law_with_far_ends_is_not_made_dense() -> None:
    """Of a million answers: 27 nats on either side."""
    with pytest.raises(GridTooLarge):
        repeated(m.RandomisedResponse(1_000_000, Fraction(1, 10**6)), "REPLACE_ONE", 1, 1e-5)
