"""The rule ``gaussian``: certificates and capacities against exact curves, evaluated another way."""

from collections.abc import Callable
from fractions import Fraction
from math import exp, log, sqrt
from statistics import NormalDist
from typing import Any

import mpmath
import pytest
from dp_accounting import get_epsilon_gaussian
from msgspec import structs

from ledger.accounting.epsilon_report import report_epsilon
from ledger.accounting.gaussian_certificates import certificate, exact_square, gaussian_capacity, gaussian_epsilon
from ledger.filters import Opening, choose_rule
from ledger.filters.gaussian import GaussianRule
from ledger.mechanisms import mechanism as m
from ledger.mechanisms.loss import Loss, Segment, loss_of
from ledger.wire.exact_numbers import DELTA_ONE, NAT
from ledger.wire.malformed import Malformed

WIDE = mpmath.mp.clone()
WIDE.dps = 40
ZERO_OUT = "REPLACE_SPECIAL"
EPSILONS = [place / 97 for place in range(900)]


def gaussian_curve(epsilon: float, square: int) -> Any:  # noqa: ANN401 - mpmath has no types
    """H_e(G_μ) at 40 digits, for μ² in units of 2^-40."""
    mu, e = WIDE.sqrt(WIDE.mpf(square) / NAT), WIDE.mpf(epsilon)
    return WIDE.ncdf(-e / mu + mu / 2) - WIDE.exp(e) * WIDE.ncdf(-e / mu - mu / 2)


def laplace_curve(scale: float) -> Callable[[float], float]:
    """H_e of a Laplace mechanism of sensitivity 1: 1 - e^((e - 1/b)/2) up to e = 1/b."""
    return lambda epsilon: max(0.0, 1 - exp((epsilon - 1 / scale) / 2))


def response_curve(buckets: int, noise: float) -> Callable[[float], float]:
    """H_e of one record's answer left out, the worse of both orders, from its laws."""
    high, even = 1 - noise + noise / buckets, 1 / buckets
    low = noise / buckets

    def curve(epsilon: float) -> float:
        grown = exp(epsilon)
        removed = max(0.0, high - grown * even) + (buckets - 1) * max(0.0, low - grown * even)
        added = max(0.0, even - grown * high) + (buckets - 1) * max(0.0, even - grown * low)
        return max(removed, added)

    return curve


def pure_curve(epsilon_of: float) -> Callable[[float], float]:
    """H_e of randomised response, the worst that is ε-DP."""
    return lambda epsilon: max(0.0, (exp(epsilon_of) - exp(epsilon)) / (1 + exp(epsilon_of)))


SINGLE: list[tuple[m.Mechanism, Callable[[float], float]]] = [
    (m.Laplace(Fraction(1)), laplace_curve(1.0)),
    (m.Laplace(Fraction(7, 2)), laplace_curve(3.5)),
    (m.Group(2, m.Laplace(Fraction(7))), laplace_curve(3.5)),
    (m.RandomisedResponse(2, Fraction(1, 2)), response_curve(2, 0.5)),
    (m.RandomisedResponse(10, Fraction(3, 4)), response_curve(10, 0.75)),
]


@pytest.mark.parametrize(("mechanism", "curve"), SINGLE, ids=lambda one: getattr(one, "kind", ""))
@pytest.mark.parametrize("tau", [Fraction(1, 1000), Fraction(1, 100_000)])
def test_a_certificate_covers_the_curve(mechanism: m.Mechanism, curve: Callable[[float], float], tau: Fraction) -> None:
    """At every ε: at most τ more than the Gaussian; and a Gaussian of a twentieth less does not cover it."""
    square = certificate(mechanism, ZERO_OUT, 1, tau)
    assert square is not None
    assert all(curve(epsilon) <= float(tau) + gaussian_curve(epsilon, square) for epsilon in EPSILONS)
    less = square * 19 // 20
    assert any(curve(epsilon) > float(tau) + gaussian_curve(epsilon, less) for epsilon in EPSILONS)


@pytest.mark.parametrize("relation", [ZERO_OUT, "REPLACE_ONE"])
def test_an_answer_of_noise_alone_has_a_price(relation: str) -> None:
    """It loses nothing, and is charged hardly anything."""
    rule = choose_rule("gaussian", Opening(Fraction(1, 1000), (Fraction(3),), None))
    (segment,) = rule.segments(m.SelfComposed(7, m.RandomisedResponse(4, Fraction(1))), relation)
    square, tau = segment.price
    assert square is not None
    assert 0 < square < NAT // 10**5
    assert rule.covers((segment,), m.SelfComposed(7, m.RandomisedResponse(4, Fraction(1))), relation)
    assert tau in rule.to_json()["menu"]  # type: ignore[operator] # JSON


@pytest.mark.parametrize("epsilon", [Fraction(1, 100), Fraction(1), Fraction(5), Fraction(20)])
def test_a_pure_loss_is_covered_without_slack(epsilon: Fraction) -> None:
    """The Gaussian of the same total variation lies above randomised response everywhere, and a hair less does not."""
    square = exact_square(m.Pure(epsilon, ZERO_OUT), ZERO_OUT)
    assert square is not None
    curve = pure_curve(float(epsilon))
    points = [float(epsilon) * place / 400 for place in range(400)]
    assert all(curve(e) <= gaussian_curve(e, square) + WIDE.mpf("1e-15") for e in points)
    assert curve(0.0) > gaussian_curve(0.0, square * 999 // 1000)


def test_what_needs_no_certificate_is_exact() -> None:
    """Gaussian noise by its own μ², in a group and when records are replaced; a black box as its pure part."""
    assert exact_square(m.Gaussian(Fraction(4)), ZERO_OUT) == NAT // 16
    assert exact_square(m.Gaussian(Fraction(4)), "REPLACE_ONE") == NAT // 4
    assert exact_square(m.Group(3, m.FullBatchEpochs(1, Fraction(6))), ZERO_OUT) == NAT // 4
    assert exact_square(m.PoissonGaussian(Fraction(1), Fraction(8), 1), ZERO_OUT) == NAT // 64
    assert exact_square(m.PoissonGaussian(Fraction(1, 2), Fraction(8), 1), ZERO_OUT) is None
    assert exact_square(m.GaussianPrivate(Fraction(3), ZERO_OUT), ZERO_OUT) == 3 * NAT
    assert exact_square(m.Group(2, m.GaussianPrivate(Fraction(3), ZERO_OUT)), ZERO_OUT) == 12 * NAT
    pure = exact_square(m.Pure(Fraction(2), ZERO_OUT), ZERO_OUT)
    assert exact_square(m.BlackBox(Fraction(1, 1000), Fraction(2), ZERO_OUT), ZERO_OUT) == pure
    assert exact_square(m.Group(2, m.Pure(Fraction(1), ZERO_OUT)), ZERO_OUT) == pure


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(3), Fraction(10)])
@pytest.mark.parametrize("delta", [Fraction(1, 1000), Fraction(1, 10**6), Fraction(1, 10**9)])
def test_a_capacity_keeps_the_budget_and_hardly_less(epsilon: Fraction, delta: Fraction) -> None:
    """By 40-digit arithmetic and by the library's exact Gaussian; what is told at it is the budget."""
    square = gaussian_capacity(epsilon, delta)
    assert gaussian_curve(float(epsilon), square) <= WIDE.mpf(delta.numerator) / delta.denominator
    assert gaussian_curve(float(epsilon), square + square // 1000 + 1) > WIDE.mpf(delta.numerator) / delta.denominator
    reported = gaussian_epsilon(square, delta)
    assert reported is not None
    assert epsilon * Fraction(999, 1000) <= reported <= epsilon * Fraction(1_000_001, 1_000_000)
    assert float(reported) >= get_epsilon_gaussian(1 / sqrt(square / NAT), float(delta)) * (1 - 1e-9)


def test_a_run_is_certified_as_a_whole() -> None:
    """Sampled steps, and rounds of several mechanisms: one that has begun is charged whole."""
    rule = choose_rule("gaussian", Opening(Fraction(1, 1000), (Fraction(3),), None))
    rounds = m.SelfComposed(4, m.Composed((m.Laplace(Fraction(20)), m.RandomisedResponse(4, Fraction(19, 20)))))
    for mechanism, steps in ((m.PoissonGaussian(Fraction(1, 20), Fraction(2), 50), 50), (rounds, 4)):
        segments = rule.segments(mechanism, ZERO_OUT)
        assert [(one.steps, one.unit) for one in segments] == [(steps, steps)]
        assert loss_of(segments, 0).empty
        assert loss_of(segments, 1) == loss_of(segments, steps)
        square, tau = segments[0].price
        assert square
        assert tau
        assert tau in choose_rule("gaussian", Opening(Fraction(1, 1000), (Fraction(3),), None)).to_json()["menu"]  # type: ignore[operator] # JSON
        assert certificate_of(mechanism, Fraction(tau, DELTA_ONE)) == square
    plain = rule.segments(m.Gaussian(Fraction(4)), ZERO_OUT)
    assert loss_of(plain, 1) == Loss((NAT // 16, 0), (0, 0))


def test_only_prices_that_cover_a_run_are_accepted() -> None:
    """What a charge records, and what is recorded wrongly: less, at a τ that is not offered, or not as a whole."""
    rule = choose_rule("gaussian", Opening(Fraction(1, 1000), (Fraction(3),), None))
    sampled, plain, box = (
        m.PoissonGaussian(Fraction(1, 20), Fraction(2), 50),
        m.Gaussian(Fraction(4)),
        m.BlackBox(Fraction(1, 100_000), Fraction(1, 4), ZERO_OUT),
    )
    ((run,), (step,), (once,)) = (rule.segments(one, ZERO_OUT) for one in (sampled, plain, box))
    (square, tau), (pure, spent) = run.price, once.price
    assert square
    assert tau
    assert pure
    assert spent
    accepted = [
        (sampled, run),
        (sampled, Segment(50, (square + 1, tau), 50)),
        (sampled, Segment(50, (None, tau), 50)),
        (sampled, Segment(50, (square, None), 50)),
        (plain, step),
        (plain, Segment(1, (None, 0))),
        (plain, Segment(1, (NAT // 16, None))),
        (box, once),
        (box, Segment(1, (pure, spent + 1))),
        (box, Segment(1, (pure, None))),
    ]
    refused = [
        (sampled, Segment(50, (square * 9 // 10, tau), 50)),
        (sampled, Segment(50, (square, tau + 1), 50)),
        (sampled, Segment(50, (square, tau))),
        (sampled, Segment(49, (square, tau), 49)),
        (plain, Segment(1, (NAT // 16 - 1, 0))),
        (plain, Segment(2, (NAT // 16, 0))),
        (box, Segment(1, (pure * 9 // 10, spent))),
        (box, Segment(1, (pure, spent - 1))),
        (box, Segment(1, (None, spent - 1))),
    ]
    for mechanism, one in accepted:
        assert rule.covers((one,), mechanism, ZERO_OUT), one
    for mechanism, one in refused:
        assert not rule.covers((one,), mechanism, ZERO_OUT), one
    assert not rule.covers((), sampled, ZERO_OUT)
    assert not rule.covers((run, run), sampled, ZERO_OUT)
    # A record that is replaced moves a sum twice as far.
    assert not rule.covers((step,), plain, "REPLACE_ONE")
    assert rule.covers((Segment(1, (NAT // 4, 0)),), plain, "REPLACE_ONE")


def test_the_slack_is_all_that_the_gaussian_does_not_have() -> None:
    """Half of δ unless another part is declared; the capacity found at opening is that of the rest."""
    delta = Fraction(1, 1000)
    for slack in (0, DELTA_ONE // 10_000):
        rule = GaussianRule.choose(Opening(delta, (Fraction(3),), None, slack=slack))
        assert rule.slack == (slack or DELTA_ONE // 2000)
        assert rule.certain == delta - Fraction(rule.slack, DELTA_ONE)
        assert rule.capacity == gaussian_capacity(Fraction(3), rule.certain)
        assert rule.cap(Fraction(3)).capacity == (rule.capacity, rule.slack)
    old = structs.replace(rule, capacity=None)
    for square in (1, NAT // 8, NAT):
        assert old.odometer(Loss((square, 0), (0, 0))) == rule.odometer(Loss((square, 0), (0, 0)))


@pytest.mark.parametrize("delta", [Fraction(1, 10**9 + 1), Fraction(1), Fraction(3, 2)])
def test_a_delta_outside_its_range_is_refused(delta: Fraction) -> None:
    """With the range; its least opens."""
    with pytest.raises(Malformed) as fault:
        GaussianRule.choose(Opening(delta, (Fraction(3),), None))
    assert str(fault.value) == "delta: must be at least 1e-9 and less than 1 for the rule gaussian"
    assert GaussianRule.choose(Opening(Fraction(1, 10**9), (Fraction(3),), None)).delta == Fraction(1, 10**9)


def certificate_of(mechanism: m.Mechanism, tau: Fraction) -> int | None:
    """The certificate of a whole mechanism of one piece."""
    from ledger.mechanisms.decomposition import to_steps

    ((count, step),) = to_steps(mechanism)
    return certificate(step, ZERO_OUT, count, tau)


def test_a_run_has_more_room_than_its_own_epsilon_says() -> None:
    """Sanity: what the rule charges for one run alone, told as an ε, is at least what PLD tells of it."""
    plan = m.PoissonGaussian(Fraction(1, 20), Fraction(2), 200)
    delta = Fraction(1, 1000)
    square = certificate_of(plan, delta / 10)
    assert square is not None
    alone = gaussian_epsilon(square, delta * Fraction(9, 10))
    assert alone is not None
    assert report_epsilon(plan, delta, ZERO_OUT).epsilon <= alone


def test_independent_normal_tail() -> None:
    """The curve these tests compare with is the normal distribution's own, as the standard library has it."""
    normal = NormalDist()
    for square, epsilon in ((NAT, 1.0), (NAT // 4, 0.3)):
        mu = sqrt(square / NAT)
        plain = normal.cdf(-epsilon / mu + mu / 2) - exp(epsilon) * normal.cdf(-epsilon / mu - mu / 2)
        assert float(gaussian_curve(epsilon, square)) == pytest.approx(plain, rel=1e-9)
        assert log(plain) < 0
