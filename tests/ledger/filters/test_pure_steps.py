"""What is ε-DP, in a catalogue that lists a Gaussian of its total variation: charged as that, and never for less."""

from __future__ import annotations

from fractions import Fraction
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from ledger.filters import Catalogue, Opening, choose_rule
from ledger.filters.step_types import dominating
from ledger.mechanisms.loss import Loss, loss_of
from ledger.mechanisms.mechanism import Composed, Gaussian, Mechanism, PoissonGaussian, Pure

RELATION = "REPLACE_SPECIAL"
COVID = PoissonGaussian(Fraction(1, 186), Fraction(6531, 10_000), 186)
DELTA, EPSILON = Fraction(1, 1_483), Fraction(3)


def pure(epsilon: str) -> Pure:
    """Whatever has this ε."""
    return Pure(epsilon=Fraction(epsilon), relation=RELATION)


@given(st.fractions(Fraction(1, 1_000), Fraction(8), max_denominator=10_000), st.floats(0, 1))
def test_its_gaussian_tells_the_neighbours_apart_at_least_as_well(epsilon: Fraction, part: float) -> None:
    """Randomised response of ε has no greater δ at any ε' (the definitions; Balle, Wang 2018, Theorem 8)."""
    found = dominating(Pure(epsilon=epsilon, relation=RELATION))
    assert found is not None
    assert (found.probability, found.steps) == (Fraction(1), 1)
    of, at, mu = float(epsilon), part * float(epsilon), 1 / float(found.noise_multiplier)
    response = (exp(of) - exp(at)) / (1 + exp(of))
    gaussian = norm.cdf(mu / 2 - at / mu) - exp(at) * norm.cdf(-mu / 2 - at / mu)
    assert gaussian >= response - 1e-15
    # And it is no more than rounding above it where only the total variation counts.
    assert norm.cdf(mu / 2) - norm.cdf(-mu / 2) == pytest.approx((exp(of) - 1) / (1 + exp(of)), rel=1e-3)


def opened(load: Mechanism) -> Catalogue:
    """Under the budget of DEPA's COVID scenario."""
    rule = choose_rule("catalogue", Opening(DELTA, (EPSILON, EPSILON), load, RELATION))
    assert isinstance(rule, Catalogue)
    return rule


def fit(rule: Catalogue, run: Mechanism) -> int:
    """How many such runs."""
    segments = rule.segments(run, RELATION)
    assert rule.covers(segments, run, RELATION)
    loss = loss_of(segments, sum(one.steps for one in segments))
    return rule.runs(Loss.zero(2), rule.cap(EPSILON), loss)


def test_runs_of_stages_fit_where_the_load_says_so() -> None:
    """Ten with two statistics of ε 0.06 each; where the load is of training alone, fewer."""
    staged = Composed((pure("0.06"), COVID, pure("0.06")))
    assert fit(opened(staged), staged) == 10
    assert fit(opened(COVID), staged) == 7


def test_a_type_covers_no_more_than_its_total_variation() -> None:
    """A greater ε has a price of its own, and one that was charged as the type is not covered."""
    rule = opened(Composed((COVID, Gaussian(Fraction(8)))))
    listed = rule.segments(pure("0.09"), RELATION)
    (gaussian,) = (one for one in rule.types if one.probability == 1)
    assert [one.price[0] for one in listed] == [gaussian.ticks]
    dear = rule.segments(pure("0.11"), RELATION)
    assert (dear[0].price[0] or 0) > gaussian.ticks
    assert not rule.covers(listed, pure("0.11"), RELATION)
