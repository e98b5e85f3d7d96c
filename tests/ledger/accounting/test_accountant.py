"""Prices against 60-digit arithmetic, tellings against the library's own accountant and the exact Gaussian."""

from fractions import Fraction

import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent, get_epsilon_gaussian
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.accounting.calibration import calibrate_noise, most_steps
from ledger.accounting.epsilon_report import report_epsilon, reported_epsilon
from ledger.accounting.renyi import price
from ledger.mechanisms.mechanism import STEPS_MAX, BlackBox, PoissonGaussian, Pure
from ledger.wire.exact_numbers import LOSS_MAX, NAT
from ledger.wire.malformed import Malformed
from tests.ledger.accounting.exact import sampled_gaussian

UNIT = Fraction(1, NAT)


def renyi_price(probability: Fraction, noise: Fraction, orders: tuple[int, ...]) -> tuple[int | None, ...]:
    """Of one Poisson-sampled Gaussian step."""
    return price(PoissonGaussian(probability, noise, 1), "REPLACE_SPECIAL", orders)


RELATIVE, ABSOLUTE = Fraction(1001, 10**12), Fraction(13, 10**13)


def priced_above(probability: Fraction, noise: Fraction, order: int) -> bool:
    """Whether the price is never below the exact divergence, and above it by the documented slack at most."""
    exact = sampled_gaussian(probability, noise, order)
    (units,) = renyi_price(probability, noise, (order,))
    if units is None:
        return exact * (1 + RELATIVE) + ABSOLUTE > Fraction(LOSS_MAX - 1, NAT)
    return exact <= units * UNIT <= exact * (1 + RELATIVE) + ABSOLUTE + UNIT


@pytest.mark.parametrize("order", [2, 3, 8, 32])
@pytest.mark.parametrize(("probability", "noise"), [(3, 4), (2, 1), (50, 3), (1000, 2), (10**6, 5)])
def test_both_slacks_are_kept_whole(probability: int, noise: int, order: int) -> None:
    """A billionth and 1e-12 nat above what the library says, rounded up: its error may use all of them."""
    accountant = RdpAccountant(orders=[order])
    accountant.compose(PoissonSampledDpEvent(1 / probability, GaussianDpEvent(noise)))
    rho = Fraction(float(accountant.rdp[0]))
    (units,) = renyi_price(Fraction(1, probability), Fraction(noise), (order,))
    assert units is not None
    assert units * UNIT >= rho + rho / 10**9 + Fraction(1, 10**12)


@settings(deadline=None, max_examples=75)
@given(
    st.integers(1, 9).flatmap(lambda places: st.integers(1, 10**places).map(lambda n: Fraction(n, 10**places))),
    st.one_of(
        st.integers(3_000, 50_000).map(lambda n: Fraction(n, 10_000)),
        st.builds(Fraction, st.integers(1, 10**6), st.integers(1, 3)),
    ),
    st.one_of(st.integers(2, 64), st.integers(2, 256)),
)
def test_price_is_never_below_and_hardly_above_the_exact_divergence(
    probability: Fraction, noise: Fraction, order: int
) -> None:
    """Over the whole range of plans, at integer orders."""
    assert priced_above(probability, noise, order)


EXTREMES = [
    (Fraction(1), Fraction(1, 100), 2),
    (Fraction(1), Fraction(1, 100), 256),
    (Fraction(1), Fraction(1_000_000), 2),
    (Fraction(1), Fraction(1, 3), 7),
    (Fraction(1, 10**9), Fraction(1_000_000), 2),
    (Fraction(1, 10**9), Fraction(1_000_000), 256),
    (Fraction(1, 10**9), Fraction(1, 100), 2),
    (Fraction(1, 10**9), Fraction(1, 100), 256),
    (Fraction(10**9 - 1, 10**9), Fraction(1, 100), 64),
    (Fraction(10**9 - 1, 10**9), Fraction(1_000_000), 256),
    (Fraction(1, 186), Fraction(6531, 10_000), 3),
    (Fraction(1, 186), Fraction(6531, 10_000), 5),
    (Fraction(256, 60_000), Fraction(11, 10), 13),
    (Fraction(1, 100), Fraction(10), 256),
    (Fraction(1, 10**6), Fraction(4), 16),
    (Fraction(1, 2), Fraction(1, 2), 40),
    (Fraction(1, 3), Fraction(1, 7), 2),
]


@pytest.mark.parametrize(("probability", "noise", "order"), EXTREMES)
def test_price_at_the_ends_of_the_range(probability: Fraction, noise: Fraction, order: int) -> None:
    """Where the library's relative error is largest, where a step loses nothing, and where it loses all."""
    assert priced_above(probability, noise, order)


def test_a_loss_beyond_256_nat_is_infinite() -> None:
    """Overstated, never understated: at σ = 0.01 each order loses thousands of nats."""
    assert renyi_price(Fraction(1), Fraction(1, 100), (2, 256)) == (None, None)


def test_price_of_several_orders_is_that_of_each() -> None:
    """The vector is the orders' own prices, in their order."""
    orders = (2, 5, 9, 64, 256)
    several = renyi_price(Fraction(1, 50), Fraction(1), orders)
    assert several == tuple(renyi_price(Fraction(1, 50), Fraction(1), (order,))[0] for order in orders)


PLANS = [
    (PoissonGaussian(Fraction(16, 175), Fraction(9, 4), 120), Fraction(1, 100_000)),
    (PoissonGaussian(Fraction(1, 186), Fraction(6531, 10_000), 186), Fraction(1, 1483)),
    (PoissonGaussian(Fraction(256, 60_000), Fraction(11, 10), 1170), Fraction(1, 100_000)),
    (PoissonGaussian(Fraction(1), Fraction(5), 20), Fraction(1, 10**6)),
]


@pytest.mark.parametrize(("mechanism", "delta"), PLANS)
def test_told_epsilon_is_the_libraries_pld(mechanism: PoissonGaussian, delta: Fraction) -> None:
    """Four digits of dp_accounting's PLDAccountant under REPLACE_SPECIAL, and not above it by more."""
    accountant = PLDAccountant(NeighboringRelation.REPLACE_SPECIAL)
    event = PoissonSampledDpEvent(float(mechanism.probability), GaussianDpEvent(float(mechanism.noise_multiplier)))
    accountant.compose(event, mechanism.steps)
    expected = accountant.get_epsilon(float(delta))
    assert float(reported_epsilon(mechanism, delta, "REPLACE_SPECIAL")) == pytest.approx(expected, rel=5e-5)


@settings(deadline=None, max_examples=8)
@given(st.integers(200, 2_000), st.integers(1, 30), st.sampled_from([3, 5, 8, 10]))
def test_told_epsilon_is_never_below_the_exact_gaussian(noise: int, steps: int, digits: int) -> None:
    """Without sampling, T steps are one Gaussian of noise σ/√T, whose ε is known exactly."""
    sigma, delta = Fraction(noise, 100), Fraction(1, 10**digits)
    told = reported_epsilon(PoissonGaussian(Fraction(1), sigma, steps), delta, "REPLACE_SPECIAL")
    exact = get_epsilon_gaussian(float(sigma) / steps**0.5, float(delta))
    assert float(told) >= exact * (1 - 1e-12)
    assert float(told) <= exact + 0.01


def test_tiny_steps_are_told_by_the_lesser_bound() -> None:
    """A million tiny steps: the discretised PLD alone would tell several times too much."""
    told = reported_epsilon(
        PoissonGaussian(Fraction(1, 1000), Fraction(50), 1_000_000), Fraction(1, 10**6), "REPLACE_SPECIAL"
    )
    assert float(told) < 0.081


def test_no_epsilon_is_told_below_a_delta_of_1e_11() -> None:
    """There the discretisation's own infinite mass would decide."""
    with pytest.raises(Malformed, match="delta"):
        reported_epsilon(PLANS[0][0], Fraction(1, 10**12), "REPLACE_SPECIAL")


@pytest.mark.parametrize(
    ("relation", "probability", "steps"),
    [("REPLACE_SPECIAL", Fraction(1, 4), 4), ("ADD_OR_REMOVE_ONE", Fraction(1), 4)],
)
def test_calibrated_noise_is_the_least_that_keeps_the_budget(relation: str, probability: Fraction, steps: int) -> None:
    """It keeps ε; a ten-thousandth less noise does not."""
    epsilon, delta = Fraction(1), Fraction(1, 10**5)
    noise = calibrate_noise(probability, steps, epsilon, delta, relation)

    def spent(multiplier: Fraction) -> float:
        accountant = PLDAccountant(NeighboringRelation[relation])
        accountant.compose(PoissonSampledDpEvent(float(probability), GaussianDpEvent(float(multiplier))), steps)
        return float(accountant.get_epsilon(float(delta)))

    assert spent(noise) <= epsilon < spent(noise - Fraction(1, 10_000))
    assert noise.denominator in {2**a * 5**b for a in range(5) for b in range(5)}


def test_what_no_noise_can_keep_is_refused() -> None:
    """An ε that even the greatest permitted noise multiplier exceeds."""
    with pytest.raises(Malformed, match="epsilon"):
        calibrate_noise(Fraction(1), 1, Fraction(1, 10**9), Fraction(1, 10**11))


@pytest.mark.parametrize(
    "mechanism",
    [
        PoissonGaussian(Fraction(1), Fraction(1, 100), 10_000_000),
        PoissonGaussian(Fraction(1, 2), Fraction(1, 2), 10_000_000),
        PoissonGaussian(Fraction(1, 2), Fraction(1, 100), 1),
        PoissonGaussian(Fraction(1), Fraction(1), 100_000),
        PoissonGaussian(Fraction(1, 10**9), Fraction(1, 100), 1),
    ],
)
def test_a_ruinous_plan_is_told_at_once(mechanism: PoissonGaussian) -> None:
    """A plan that anyone may send must not take gigabytes: far beyond every budget, Rényi's bound is told."""
    assert reported_epsilon(mechanism, Fraction(1, 10**6), "REPLACE_SPECIAL") > 256


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        (Fraction(1), Fraction(1, 10**5)),
        pytest.param(Fraction(3), Fraction(1, 1483), marks=pytest.mark.soak),
    ],
)
def test_calibrated_steps_are_the_most_that_keep_the_budget(epsilon: Fraction, delta: Fraction) -> None:
    """They keep ε by what is told of them; one more does not."""
    probability, noise = Fraction(1, 186), Fraction(6531, 10_000)
    if epsilon < 2:
        noise = Fraction(2)

    def of(count: int) -> PoissonGaussian:
        return PoissonGaussian(probability, noise, count)

    def told(count: int) -> Fraction:
        return reported_epsilon(of(count), delta, "REPLACE_SPECIAL")

    steps = most_steps(of, epsilon, delta, "REPLACE_SPECIAL", STEPS_MAX)

    assert told(steps) <= epsilon < told(steps + 1)


def test_noise_that_not_even_one_step_survives() -> None:
    """No step keeps the budget."""

    def of(count: int) -> PoissonGaussian:
        return PoissonGaussian(Fraction(1), Fraction(1, 10), count)

    assert most_steps(of, Fraction(1), Fraction(1, 10**5), "REPLACE_SPECIAL", STEPS_MAX) == 0


def test_a_pure_sum_is_told_as_basic_composition_and_an_infinite_loss_by_its_field() -> None:
    """At δ = 0 nothing else proves less; a black box that may lose more than δ leaves no number."""
    assert report_epsilon(Pure(Fraction(1, 2), "REPLACE_SPECIAL"), Fraction(0), "REPLACE_SPECIAL").accountant == "basic"
    box = BlackBox(Fraction(1, 100), Fraction(1), "REPLACE_SPECIAL")
    with pytest.raises(Malformed) as refused:
        report_epsilon(box, Fraction(1, 1_000), "REPLACE_SPECIAL")
    assert refused.value.field == "noise_multiplier"
