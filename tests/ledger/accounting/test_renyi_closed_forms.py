"""Rényi divergences against numerical integration and exact sums, at 40 digits, both directions."""

from collections.abc import Callable
from fractions import Fraction
from math import comb
from typing import Any

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.accounting import renyi_closed_forms as ours
from ledger.accounting.pure_dp import pure_epsilon
from ledger.accounting.renyi import ABSOLUTE_SLACK, ACCEPTED, ISSUED, RELATIVE_SLACK, divergence, price
from ledger.mechanisms import mechanism as m
from ledger.wire.exact_numbers import NAT
from tests.ledger.accounting.exact import divergence as of_pairs
from tests.ledger.accounting.exact import sampled_gaussian

WIDE = mpmath.mp.clone()
WIDE.dps = 40
ORDERS = st.integers(2, 64)
NOISES = st.fractions(Fraction(1, 4), Fraction(40), max_denominator=1000)
HAIR = Fraction(1, 1 << 50)


def number(value: Fraction) -> Any:  # noqa: ANN401 - mpmath has no types
    """As mpmath has it."""
    return WIDE.mpf(value.numerator) / value.denominator


def close_above(told: Fraction | None, exact: Any) -> bool:  # noqa: ANN401 - mpmath has no types
    """Whether a divergence is told that is not below the exact one, and above it by a hair."""
    return told is not None and bool(exact <= number(told) <= exact * (1 + number(HAIR)) + number(HAIR))


@settings(deadline=None, max_examples=12)
@given(NOISES.filter(lambda noise: noise > 1), st.integers(2, 12), st.sampled_from([1, 2]))
def test_laplace_is_its_integral(noise: Fraction, order: int, scale: int) -> None:
    """∫ p^α q^(1-α) of two Laplace densities, between and beyond their centres."""
    b, d = number(noise), WIDE.mpf(scale)

    def density(x: Any) -> Any:  # noqa: ANN401 - mpmath has no types
        p, q = WIDE.exp(-abs(x) / b) / (2 * b), WIDE.exp(-abs(x - d) / b) / (2 * b)
        return p**order * q ** (1 - order)

    total = WIDE.quad(density, [-200 * b, -b, 0, d, d + b, d + 200 * b])
    exact = WIDE.log(total) / (order - 1)
    told = ours.laplace(noise, scale, order)
    assert number(told) >= exact * (1 - WIDE.mpf("1e-12"))
    assert number(told) <= exact * (1 + WIDE.mpf("1e-12")) + number(HAIR)


@settings(deadline=None, max_examples=40)
@given(NOISES, NOISES, ORDERS)
def test_laplace_in_several_coordinates_is_at_most_in_one(noise: Fraction, part: Fraction, order: int) -> None:
    """A distance split over two coordinates loses less: the curve is convex in the distance and 0 at 0."""
    share = part / 41
    one = ours.laplace(noise / share, 1, order)
    other = ours.laplace(noise / (1 - share), 1, order)
    assert one + other <= ours.laplace(noise, 1, order) + HAIR


@settings(deadline=None, max_examples=60)
@given(st.fractions(Fraction(1, 10**6), Fraction(20), max_denominator=10**6), ORDERS)
def test_pure_is_randomised_response(epsilon: Fraction, order: int) -> None:
    """The divergence of the mechanism that dominates all others."""
    truth = 1 / (1 + WIDE.exp(-number(epsilon)))
    lie = 1 - truth
    total = truth**order * lie ** (1 - order) + lie**order * truth ** (1 - order)
    exact = min(WIDE.log(total) / (order - 1), number(epsilon))
    assert close_above(ours.pure(epsilon, order), exact)


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 30), st.fractions(Fraction(1, 1000), Fraction(1), max_denominator=1000), ORDERS)
def test_response_is_its_exact_sum(buckets: int, noise: Fraction, order: int) -> None:
    """Every output of both laws, written out; a record replaced, and one left out."""
    spread = noise / buckets
    truth = [1 - noise + spread] + [spread] * (buckets - 1)
    other = [spread, 1 - noise + spread] + [spread] * (buckets - 2)
    nothing = [Fraction(1, buckets)] * buckets
    for law, replaced in ((other, True), (nothing, False)):
        both = (tuple(zip(truth, law, strict=True)), tuple(zip(law, truth, strict=True)))
        exact = [one for one in (of_pairs(order, pairs) for pairs in both) if one is not None]
        assert len(exact) == 2
        told = ours.response(buckets, noise, order, replaced=replaced)
        assert max(exact) - HAIR <= told <= max(exact) + HAIR
        relation = "REPLACE_ONE" if replaced else "REPLACE_SPECIAL"
        greatest = max(max(p / q, q / p) for p, q in both[0])
        assert close_above(pure_epsilon(m.RandomisedResponse(buckets, noise), relation), WIDE.log(number(greatest)))


@settings(deadline=None, max_examples=30)
@given(NOISES.filter(lambda noise: noise > 1), st.integers(1, 300), st.integers(2, 40))
def test_sampling_without_replacement_is_theorem_nine(noise: Fraction, sample: int, order: int) -> None:
    """Wang, Balle, Kasiviswanathan 2019 by another road; at most the Gaussian that is not sampled."""
    ratio, variance = WIDE.mpf(sample) / 300, number(noise) ** 2
    pair = WIDE.exp(4 / variance)
    total = 1 + comb(order, 2) * ratio**2 * min(4 * (pair - 1), 2 * pair)
    for j in range(3, order + 1):
        total += 2 * comb(order, j) * ratio**j * WIDE.exp((j - 1) * 2 * j / variance)
    exact = min(WIDE.log(total) / (order - 1), 2 * order / variance)
    told = divergence(m.SampledWithoutReplacement(noise, 300, sample, 1), "REPLACE_ONE", order)
    assert told is not None
    assert number(told) >= exact * (1 - WIDE.mpf("1e-35"))
    assert number(told) <= 3 * exact + number(HAIR)
    assert told <= 2 * order / noise**2


GROUPS: list[tuple[m.Mechanism, Callable[[int, int], Any]]] = [
    (m.Laplace(Fraction(6)), lambda k, order: number(ours.laplace(Fraction(6), k, order))),
    (m.Pure(Fraction(1, 4), "REPLACE_SPECIAL"), lambda k, order: number(ours.pure(Fraction(k, 4), order))),
    (m.PoissonGaussian(Fraction(1), Fraction(5), 1), lambda k, order: WIDE.mpf(order * k * k) / 50),
]


@pytest.mark.parametrize("k", [2, 3, 8])
@pytest.mark.parametrize("order", [2, 9])
@pytest.mark.parametrize(("mechanism", "exact"), GROUPS, ids=lambda one: getattr(one, "kind", ""))
def test_a_group_moves_a_sum_k_times_as_far(
    mechanism: m.Mechanism, exact: Callable[[int, int], Any], k: int, order: int
) -> None:
    """The loss of a group of k is that of a sensitivity of k."""
    assert close_above(divergence(m.Group(k, mechanism), "REPLACE_SPECIAL", order), exact(k, order))


@pytest.mark.parametrize("order", [2, 3, 5])
@pytest.mark.parametrize("k", [2, 3, 4])
def test_a_sampled_group_is_at_least_its_mixture(order: int, k: int) -> None:
    """Records sampled each by itself: E over the multinomial expansion, in the worse direction for integers."""
    q, sigma = Fraction(1, 10), Fraction(3)
    weights = [comb(k, j) * number(q) ** j * (1 - number(q)) ** (k - j) for j in range(k + 1)]

    def moment(chosen: list[int], left: int) -> Any:  # noqa: ANN401 - mpmath has no types
        if left == 0:
            cross = (sum(chosen) ** 2 - sum(j * j for j in chosen)) / (2 * number(sigma) ** 2)
            return WIDE.exp(cross)
        return WIDE.fsum(weights[j] * moment([*chosen, j], left - 1) for j in range(k + 1))

    exact = WIDE.log(moment([], order)) / (order - 1)
    told = divergence(m.Group(k, m.PoissonGaussian(q, sigma, 1)), "REPLACE_SPECIAL", order)
    assert told is not None
    assert number(told) >= exact


@pytest.mark.parametrize("shape", ["0", "1", "poisson"])
def test_tuning_costs_more_than_one_run_and_falls_with_nothing(shape: str) -> None:
    """More runs, a lossier run, a greater order: never less."""
    inner = [m.PoissonGaussian(Fraction(1, 100), noise, 100) for noise in (Fraction(2), Fraction(4))]
    prices = {
        (mean, place): price(m.RepeatAndSelect(Fraction(mean), one, shape), "REPLACE_SPECIAL", (2, 4, 8, 16))
        for mean in (2, 10, 100)
        for place, one in enumerate(inner)
    }
    for (mean, place), told in prices.items():
        alone = price(inner[place], "REPLACE_SPECIAL", (2, 4, 8, 16))
        assert all(one is not None and two is not None and one > two for one, two in zip(told, alone, strict=True))
        assert list(told) == sorted(told, key=lambda one: one or NAT << 9)
        if mean > 2:
            less = prices[{10: 2, 100: 10}[mean], place]
            assert all((one or 0) > (two or 0) for one, two in zip(told, less, strict=True))
        if place == 1:
            assert all((one or 0) < (two or 0) for one, two in zip(told, prices[mean, 0], strict=True))


def generating(shape: str, mean: int) -> Callable[[Any], Any]:
    """E[x^K] of the number of repetitions, that none ran left out (K = 0 is told as such)."""
    if shape == "poisson":
        return lambda x: WIDE.exp(mean * (x - 1)) - WIDE.exp(-WIDE.mpf(mean))
    if shape == "1":
        rate = WIDE.mpf(1) / mean
        return lambda x: rate * x / (1 - (1 - rate) * x)
    low, high = WIDE.mpf("1e-12"), 1 - WIDE.mpf("1e-12")
    for _ in range(160):
        rate = (low + high) / 2
        low, high = (rate, high) if (1 / rate - 1) / WIDE.log(1 / rate) > mean else (low, rate)
    return lambda x: WIDE.log(1 - (1 - rate) * x) / WIDE.log(rate)


@pytest.mark.parametrize("shape", ["0", "1", "poisson"])
@pytest.mark.parametrize("mean", [2, 10, 1000])
@pytest.mark.parametrize("order", [2, 8, 64])
def test_tuning_is_at_least_the_best_of_many_answers(shape: str, mean: int, order: int) -> None:
    """Randomised response that scores itself, repeated, the best answer released: its exact law, both orders."""
    truth = 1 / (1 + WIDE.exp(-WIDE.mpf(1)))
    of = generating(shape, mean)
    laws = []
    for good in (truth, 1 - truth):
        none = WIDE.exp(-WIDE.mpf(mean)) if shape == "poisson" else WIDE.mpf(0)
        bad = of(1 - good)
        laws.append([bad, 1 - none - bad, *([none] if none else [])])
    exact = max(
        WIDE.log(WIDE.fsum(p**order * q ** (1 - order) for p, q in zip(one, other, strict=True))) / (order - 1)
        for one, other in (laws, laws[::-1])
    )
    tuned = m.RepeatAndSelect(Fraction(mean), m.Pure(Fraction(1), "REPLACE_SPECIAL"), shape)
    told = divergence(tuned, "REPLACE_SPECIAL", order)
    assert told is not None
    assert number(told) >= exact


@pytest.mark.parametrize("order", [2, 9, 64])
def test_concentrated_loss_grows_with_the_order(order: int) -> None:
    """ξ + ρ·α, exactly."""
    assert ours.zcdp(Fraction(1, 10), Fraction(1, 7), order) == Fraction(1, 7) + Fraction(order, 10)


@pytest.mark.parametrize("epsilon", [Fraction(1, 100), Fraction(1), Fraction(20)])
@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_delta_of_a_group_is_its_geometric_sum(epsilon: Fraction, k: int) -> None:
    """δ·(e^(kε) - 1)/(e^ε - 1), at most 1; of one record it is δ itself."""
    delta = Fraction(1, 10**9)
    exact = number(delta) * (WIDE.exp(k * number(epsilon)) - 1) / (WIDE.exp(number(epsilon)) - 1)
    told = ours.delta_of_group(epsilon, delta, k)
    assert close_above(told, min(exact, WIDE.mpf(1)))
    assert told == delta or k > 1
    assert told <= 1


@pytest.mark.parametrize("order", [2, 5])
def test_half_of_a_population_is_theorem_nine_to_the_last_digit(order: int) -> None:
    """Where the pair's term takes 4·(e^ε - 1) by its bound 4·ε·e^ε, and where 2·e^ε: the sum itself, rounded up."""
    for noise in (Fraction(2), Fraction(9)):
        variance = number(noise) ** 2
        pair = min(WIDE.mpf(2), 16 / variance) * WIDE.exp(4 / variance)
        total = 1 + comb(order, 2) * WIDE.mpf("0.01") * pair
        for j in range(3, order + 1):
            total += 2 * comb(order, j) * WIDE.mpf("0.1") ** j * WIDE.exp((j - 1) * 2 * j / variance)
        exact = min(WIDE.log(total) / (order - 1), 2 * order / variance)
        assert close_above(ours.without_replacement(noise, 300, 30, order), exact)
    assert ours.without_replacement(Fraction(9), 300, 300, order) == Fraction(2 * order, 81)


@pytest.mark.parametrize(("k", "doublings"), [(2, 1), (3, 2), (4, 2), (5, 3)])
def test_a_group_by_doublings_is_mironovs(k: int, doublings: int) -> None:
    """3^c·D of the order 2^c·α (Mironov 2017, Proposition 2), of concentrated loss: exactly."""
    rho, xi, order = Fraction(1, 10), Fraction(1, 7), 3
    told = divergence(m.Group(k, m.Zcdp("REPLACE_SPECIAL", rho, xi)), "REPLACE_SPECIAL", order)
    assert told == 3**doublings * (xi + rho * order * 2**doublings)


def test_an_accepted_price_has_half_of_the_slack_of_an_issued_one() -> None:
    """And neither is below the exact divergence."""
    step, rho = m.PoissonGaussian(Fraction(1, 20), Fraction(2), 1), sampled_gaussian(Fraction(1, 20), Fraction(2), 8)
    issued, accepted = (divergence(step, "REPLACE_SPECIAL", 8, halves=halves) for halves in (ISSUED, ACCEPTED))
    assert issued is not None
    assert accepted is not None
    assert rho <= accepted <= rho + (RELATIVE_SLACK * rho + ABSOLUTE_SLACK) * Fraction(3, 4)
    assert accepted + (RELATIVE_SLACK * rho + ABSOLUTE_SLACK) * Fraction(49, 100) <= issued
