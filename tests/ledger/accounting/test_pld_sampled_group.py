"""One sampled Gaussian step as a group sees it: against 40 digits, the library's loop, and a single record."""

from __future__ import annotations

import math
import warnings
from math import comb

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as library
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ledger.accounting.pld import Distribution
from ledger.accounting.pld_sampled_gaussian import group_hockey_stick, sampled_gaussian, sampled_group

WIDE = mpmath.mp.clone()
WIDE.dps = 40
EPSILONS = np.array([0.0, 0.05, 0.3, 1.0, 2.5])
LOSSES = np.array([-3.0, -1.5, -0.4, -0.02, 0.0, 0.01, 0.5, 0.99, 1.01, 3.0, 7.5])
GROUPS = [(0.6531, 1 / 186, 3), (1.1, 8 / 1875, 2), (2.0, 0.25, 8), (4.0, 0.9, 20), (0.5, 1e-6, 2)]


def drawn(k: int, probability: float) -> list[float]:
    """How likely 0, 1, ... k of k are drawn."""
    return [comb(k, j) * probability**j * (1 - probability) ** (k - j) for j in range(k + 1)]


def exact(noise: float, weights: list[float], loss: float, *, add: bool) -> float:
    """The hockey-stick divergence of the mixture, or towards it, at 40 digits: at the output of that loss."""
    wide = [WIDE.mpf(weight) for weight in weights]

    def ratio(x: mpmath.mpf) -> mpmath.mpf:
        """The mixture's density over that of the Gaussian around 0, both to the left."""
        parts = (w * WIDE.exp(-(2 * j * x + j * j) / (2 * WIDE.mpf(noise) ** 2)) for j, w in enumerate(wide))
        return sum(parts, WIDE.mpf(0))

    def normal(x: mpmath.mpf) -> mpmath.mpf:
        return WIDE.ncdf(x / noise)

    target = WIDE.exp(-loss if add else loss)
    if target <= wide[0]:
        return 0.0 if add else float(1 - target)
    low, high = WIDE.mpf(-300), WIDE.mpf(300)
    for _ in range(110):
        middle = (low + high) / 2
        low, high = (middle, high) if ratio(middle) > target else (low, middle)
    mixed = [(j, w) for j, w in enumerate(wide) if w]
    if add:
        lower = sum((w * normal(-low - j) for j, w in mixed), WIDE.mpf(0))
        return float(normal(-low) - WIDE.exp(loss) * lower)
    return float(sum((w * normal(low + j) for j, w in mixed), WIDE.mpf(0)) - WIDE.exp(loss) * normal(low))


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize(("noise", "probability", "k"), GROUPS)
def test_each_point_is_that_of_forty_digits(noise: float, probability: float, k: int, *, add: bool) -> None:
    """Also beyond the least loss there is, and on both sides of where one formula follows another."""
    weights = drawn(k, probability)
    found = group_hockey_stick(noise, weights, LOSSES, add=add)
    expected = [exact(noise, weights, float(loss), add=add) for loss in LOSSES]
    assert found == pytest.approx(expected, rel=1e-12, abs=2e-15)


def test_no_delta_is_below_0_by_rounding() -> None:
    """Just below the greatest loss that is added, where two probabilities are all but equal."""
    weights = drawn(20, 0.9)
    near = -math.log(weights[0]) - np.logspace(-1, -14, 400)
    assert group_hockey_stick(4.0, weights, near, add=True).min() >= 0


def test_what_is_never_drawn_warns_of_nothing() -> None:
    """The very loss of no record drawn, which no output has; and a number of records that is never drawn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = group_hockey_stick(1.0, [0.5, 0.5], np.array([math.log(0.5)]), add=False)
        some = group_hockey_stick(1.0, [0.5, 0.25, 0.0, 0.25], LOSSES, add=False)
    assert found == pytest.approx([0.5], rel=1e-15)
    assert some == pytest.approx([exact(1.0, [0.5, 0.25, 0.0, 0.25], loss, add=False) for loss in LOSSES], abs=2e-15)


@pytest.mark.parametrize(("noise", "probability", "k"), [GROUPS[0], GROUPS[1], GROUPS[2]])
def test_a_curve_is_the_librarys_and_not_below(noise: float, probability: float, k: int) -> None:
    """Its loop finds an output to a millionth only, and what is not the output gives less."""
    weights, interval = drawn(k, probability), 0.02
    ours = Distribution.of(sampled_group(noise, weights, interval))
    theirs = Distribution.of(
        library.from_mixture_gaussian_mechanism(noise, [*range(k + 1)], weights, value_discretization_interval=interval)
    )
    assert [(law._lower_loss, law.size) for law in ours.laws] == [(law._lower_loss, law.size) for law in theirs.laws]  # noqa: SLF001 - nothing public gives them
    more = ours.curve(EPSILONS) - theirs.curve(EPSILONS)
    assert more.min() >= -1e-14
    assert more.max() <= 5e-12


@settings(deadline=None, max_examples=25)
@given(st.floats(0.4, 20), st.floats(1e-6, 1 - 1e-6))
def test_a_group_of_one_is_a_record(noise: float, probability: float) -> None:
    """By the formula of a single record, whose inverse is one expression."""
    one = Distribution.of(sampled_group(noise, [1 - probability, probability], 0.02))
    other = Distribution.of(sampled_gaussian(noise, probability, 0.02))
    assert one.curve(EPSILONS) == pytest.approx(other.curve(EPSILONS), rel=1e-9, abs=1e-12)


@settings(deadline=None, max_examples=15)
@given(st.floats(0.5, 30), st.floats(1e-5, 1 - 1e-5), st.integers(2, 24))
@example(0.5, 0.5, 24)
def test_the_laws_of_any_group_are_laws(noise: float, probability: float, k: int) -> None:
    """They sum to one, and warn of nothing; of more records nothing is lost."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = Distribution.of(sampled_group(noise, drawn(k, probability), 0.2))
    for law in found.laws:
        assert min(law._probs.min(), law._infinity_mass) >= 0  # noqa: SLF001 - nothing public gives them
        assert law._probs.sum() + law._infinity_mass == pytest.approx(1, abs=1e-9)  # noqa: SLF001 - as above
    less = Distribution.of(sampled_group(noise, drawn(k - 1, probability), 0.2))
    assert np.all(less.curve(EPSILONS) <= found.curve(EPSILONS) + 1e-2)
