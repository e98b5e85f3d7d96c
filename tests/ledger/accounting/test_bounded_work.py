"""Hostile mechanisms end after bounded work: with a looser number, a closed coordinate or a refusal, never a crash."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from types import FrameType
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as library

from ledger.accounting.epsilon_report import report_epsilon
from ledger.accounting.gaussian_certificates import certificate
from ledger.accounting.pld import POINTS_MAX, Distribution, GridTooLarge, require_points
from ledger.accounting.pld_counting import count_capacity
from ledger.accounting.pld_mechanisms import compose, repeated
from ledger.filters import Opening, choose_rule
from ledger.mechanisms import mechanism as m
from ledger.mechanisms.loss import loss_of
from ledger.mechanisms.plan_reader import parse_plan
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

ZERO_OUT = "REPLACE_SPECIAL"
DELTA = Fraction(1, 100_000)
HUGE: list[m.Mechanism] = [
    m.Group(64, m.Laplace(Fraction(1, 100))),
    m.PoissonGaussian(Fraction(1, 2), Fraction(1, 100), 1),
    m.PoissonGaussian(Fraction(1, 2), Fraction(3, 100), 1),
    m.Group(64, m.Pure(Fraction(256), ZERO_OUT)),
    m.Composed((m.SelfComposed(9_000_000, m.Laplace(Fraction(1000))), m.Laplace(Fraction(1)))),
    m.SelfComposed(10_000_000, m.Laplace(Fraction(1000))),
]


@pytest.mark.parametrize("mechanism", HUGE, ids=lambda one: one.kind)
def test_a_grid_too_large_is_refused_before_it_is_made(mechanism: m.Mechanism) -> None:
    """On the finest grid: by its size alone."""
    with pytest.raises(GridTooLarge, match="points"):
        compose(mechanism, ZERO_OUT, 1e-5)


@pytest.mark.parametrize("mechanism", HUGE, ids=lambda one: one.kind)
def test_what_is_too_large_for_a_curve_is_reported_by_its_orders(mechanism: m.Mechanism) -> None:
    """Some finite number, or a refusal that names why; and no room in the rule that needs a curve."""
    assert report_epsilon(mechanism, DELTA, ZERO_OUT).epsilon > 0
    rule = choose_rule("gaussian", Opening(Fraction(1, 1000), (Fraction(3),), None))
    segments = rule.segments(mechanism, ZERO_OUT)
    assert any(
        one.price[0] is None or one.price[0] * one.steps > (rule.cap(Fraction(3)).capacity[0] or 0) for one in segments
    )


RUINOUS: list[m.Mechanism] = [
    m.Group(8, m.BlackBox(Fraction(1, 10**9), Fraction(256), ZERO_OUT)),
    m.Group(64, m.BlackBox(Fraction(1, 2), Fraction(256), ZERO_OUT)),
]


@pytest.mark.parametrize("mechanism", RUINOUS, ids=repr)
def test_what_loses_everything_is_refused_by_name(mechanism: m.Mechanism) -> None:
    """No ε at this δ, said in a sentence."""
    with pytest.raises(Malformed, match="infinite"):
        report_epsilon(mechanism, DELTA, ZERO_OUT)


@pytest.mark.parametrize(
    ("k", "probability"),
    [
        (2, "1/10"),
        (36, "9/10"),
        *(pytest.param(*case, marks=pytest.mark.soak) for case in ((18, "9/10"), (49, "7/10"), (64, "1/2"))),
    ],
)
def test_the_chances_of_a_sampled_group_stay_chances(k: int, probability: str) -> None:
    """That none of the group is drawn has a probability above 0, however small; what is told has both orders."""
    step = m.PoissonGaussian(Fraction(probability), Fraction(k), 1)
    # The chances are the same on every grid: a coarse one is quick.
    found = repeated(m.Group(k, step), ZERO_OUT, 1, 1e-2)
    assert 0 < found.delta(0.0) < 1
    assert found.delta(0.0) >= repeated(step, ZERO_OUT, 1, 1e-2).delta(0.0) - 1e-9


def test_a_count_ends_where_noise_would_decide() -> None:
    """Steps that lose next to nothing: the count found is one that Rényi proves, and below a fixed bound."""
    tiny = m.PoissonGaussian(Fraction(1, 10**9), Fraction(10**6), 1)
    assert count_capacity(tiny, Fraction(128), Fraction(1, 2)) == 10**9


@contextmanager
def integers_within(digits: int) -> Iterator[list[int]]:
    """Fail as soon as a decimal of more digits before its point is made an integer; the digits of each that was."""
    seen: list[int] = []

    def look(_: FrameType, event: str, called: Any) -> None:  # noqa: ANN401 - whatever is called
        if event == "c_call" and called.__name__ == "to_integral_value":
            number = called.__self__
            assert isinstance(number, Decimal)
            seen.append(number.adjusted() + 1)
            assert seen[-1] <= digits, f"an integer of {seen[-1]} digits is made"

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield seen
    finally:
        sys.setprofile(before)


def selection(epochs: int) -> c.Object:
    """The best of a Poisson number of runs that lose very much."""
    inner: c.Object = {"epochs": epochs, "kind": "full_batch_epochs", "noise_multiplier": "0.01", "v": 1}
    whole: c.Object = {"kind": "repeat_and_select", "mean": "2.5", "mechanism": inner, "shape": "poisson", "v": 1}
    return {"kind": "mechanism", "mechanism": whole, "v": 1}


def tuning(noise: str) -> c.Object:
    """Trials of a run with little noise, as the search for the least noise tries them too."""
    training: c.Object = {
        "batch_size_expected": 64,
        "clipping_norm": "1",
        "kind": "dp_sgd",
        "noise_multiplier": noise,
        "sampler": {"kind": "poisson", "probability": "0.0625"},
        "steps": 1001,
        "v": 1,
    }
    return {"kind": "tuning", "training": training, "trials": {"law": "poisson", "mean": "10", "most": 40}, "v": 1}


@pytest.mark.parametrize(
    "plan",
    [selection(1), selection(100), selection(m.STEPS_MAX), tuning("0.05"), tuning("0.02")],
    ids=["one", "hundred", "most", "tuning", "tuning-less-noise"],
)
def test_a_selection_of_what_loses_everything_makes_no_great_numbers(plan: c.Object) -> None:
    """No integer has more digits than a price has bits, though the chances that are cut to 1 would have millions."""
    rule = choose_rule("renyi", Opening(DELTA, (Fraction(6),), None))
    whole = parse_plan(plan).whole
    with integers_within(64) as seen:
        (segment,) = rule.segments(whole, ZERO_OUT)
        reported = report_epsilon(whole, DELTA, ZERO_OUT).epsilon
    assert seen
    assert reported > 1_000
    assert not rule.admits(loss_of((segment,), 1), rule.cap(Fraction(6)))


def test_the_bound_on_points_is_exact() -> None:
    """The last that is worked with, and the first that is not; what is no number is not."""
    require_points(POINTS_MAX)
    for points in (POINTS_MAX + 1, float("nan"), float("inf")):
        with pytest.raises(GridTooLarge):
            require_points(points)


def exact(noise: float, epsilon: float) -> Any:  # noqa: ANN401 - mpmath has no types
    """δ at ε of a Gaussian, at 50 digits (Balle, Wang 2018, Theorem 8)."""
    wide = mpmath.mp.clone()
    wide.dps = 50
    mu, e = 1 / wide.mpf(noise), wide.mpf(epsilon)
    return wide.ncdf(-e / mu + mu / 2) - wide.exp(e) * wide.ncdf(-e / mu - mu / 2)


@pytest.mark.parametrize("noise", [Fraction(1, 15), Fraction(1, 10), Fraction(1, 2), Fraction(5)])
@pytest.mark.parametrize("delta", [Fraction(99, 100), Fraction(1, 2), Fraction(1, 10), Fraction(1, 10**8)])
def test_what_is_reported_is_never_below_the_exact_one(noise: Fraction, delta: Fraction) -> None:
    """Not by a billionth either: the curve is evaluated at the very ε that is told."""
    reported = report_epsilon(m.Gaussian(noise), delta, ZERO_OUT).epsilon
    assert exact(float(noise), float(reported)) <= float(delta)


@pytest.mark.parametrize(
    "make",
    [
        lambda: library.from_laplace_mechanism(1.5),
        lambda: library.from_gaussian_mechanism(1.2, sampling_prob=0.1),
        lambda: library.from_randomized_response(0.3, 4),
    ],
    ids=["laplace", "sampled", "response"],
)
@pytest.mark.parametrize("count", [1, 3, 40])
def test_curves_are_the_librarys_own(make: Callable[[], Any], count: int) -> None:
    """Evaluated here from sums over the tail: the same δ at every ε, and an ε that it keeps."""
    theirs, ours = make().self_compose(count), Distribution.of(make()).self_compose(count)
    points = np.linspace(0.0, 12.0, 13)
    expected = np.asarray([theirs.get_delta_for_epsilon(one) for one in points])
    assert np.all(ours.curve(points) >= expected)
    assert np.all(ours.curve(points) <= expected + 2 * ours.noise + 1e-12)
    for delta in (0.3, 1e-3, 1e-8):
        epsilon = ours.epsilon(delta)
        assert isfinite(epsilon)
        assert ours.delta(epsilon) <= delta
        assert epsilon == pytest.approx(theirs.get_epsilon_for_delta(delta), abs=2e-3, rel=1e-3)


def test_rounds_count_every_step_inside() -> None:
    """The error of convolutions grows with the steps inside a round, not with rounds."""
    rounds = m.SelfComposed(100, m.Composed((m.SelfComposed(50, m.Laplace(Fraction(100))), m.Laplace(Fraction(100)))))
    assert compose(rounds, ZERO_OUT, 1e-3).steps == 5100
    whole = certificate(m.SelfComposed(50, m.Laplace(Fraction(100))), ZERO_OUT, 2, Fraction(1, 1000))
    assert whole is not None
    assert whole > 0


@pytest.mark.parametrize(
    "whole",
    [
        m.SelfComposed(100, m.BlackBox(Fraction(1, 2), Fraction(1), ZERO_OUT)),
        m.Composed((m.BlackBox(Fraction(1, 2), Fraction(1), ZERO_OUT), m.GaussianPrivate(Fraction(1), ZERO_OUT))),
    ],
    ids=lambda one: one.kind,
)
def test_a_group_whose_delta_is_one_is_refused_by_name(whole: m.Mechanism) -> None:
    """Nothing bounds what it loses."""
    with pytest.raises(Malformed, match="leaves an infinite ε"):
        report_epsilon(m.Group(2, whole), DELTA, ZERO_OUT)
