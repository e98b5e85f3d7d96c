"""The Rényi divergence of each mechanism where it is exact, and what is infinite or unknown."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import mpmath
import pytest

from ledger.accounting.renyi import ACCEPTED, ISSUED, divergence, price
from ledger.accounting.renyi_closed_forms import conversion, round_up
from ledger.mechanisms import mechanism as m
from ledger.wire.exact_numbers import LOSS_MAX, NAT

ZERO_OUT, REPLACED = "REPLACE_SPECIAL", "REPLACE_ONE"
WIDE = mpmath.mp.clone()
WIDE.dps = 50
STEP = m.PoissonGaussian(Fraction(1, 3), Fraction(1), 1)


@pytest.mark.parametrize(
    ("mechanism", "relation", "k", "exact"),
    [
        (m.Gaussian(Fraction(3)), ZERO_OUT, 1, Fraction(5, 18)),
        (m.Gaussian(Fraction(3)), REPLACED, 2, Fraction(5 * 16, 18)),
        (m.DiscreteGaussian(Fraction(3)), ZERO_OUT, 2, Fraction(5 * 4, 18)),
        (m.FullBatchEpochs(7, Fraction(3)), ZERO_OUT, 1, Fraction(7 * 5, 18)),
        (m.PoissonGaussian(Fraction(1), Fraction(3), 7), ZERO_OUT, 1, Fraction(7 * 5, 18)),
        (m.PoissonGaussian(Fraction(1), Fraction(3), 7), ZERO_OUT, 2, Fraction(7 * 5 * 4, 18)),
        (m.Zcdp(ZERO_OUT, rho=Fraction(1, 4), xi=Fraction(0)), ZERO_OUT, 3, Fraction(9 * 5, 4)),
        (m.Zcdp(ZERO_OUT, rho=Fraction(1, 4), xi=Fraction(1, 8)), ZERO_OUT, 1, Fraction(11, 8)),
        (m.Group(3, m.Gaussian(Fraction(3))), ZERO_OUT, 2, Fraction(5 * 36, 18)),
        (m.SelfComposed(4, m.Composed((m.Gaussian(Fraction(3)),) * 2)), ZERO_OUT, 1, Fraction(8 * 5, 18)),
    ],
)
def test_a_divergence_of_noise_is_exact(mechanism: m.Mechanism, relation: str, k: int, exact: Fraction) -> None:
    """At order 5, of a group of k."""
    assert divergence(mechanism, relation, 5, k) == exact


def test_a_loss_counts_as_infinite_beyond_256_nat() -> None:
    """At it, it does not."""
    (at,) = price(m.Gaussian(Fraction(1, 16)), ZERO_OUT, (2,))
    (beyond,) = price(m.Gaussian(Fraction(15, 241)), ZERO_OUT, (2,))
    assert (at, beyond) == (LOSS_MAX, None)


@pytest.mark.parametrize("mechanism", [STEP, m.Composed((STEP, STEP)), m.RepeatAndSelect(Fraction(5), STEP, "1")])
def test_what_is_accepted_has_half_of_the_slack_that_is_issued(mechanism: m.Mechanism) -> None:
    """In whatever holds a sampled step; by default it is issued."""
    issued, accepted = (divergence(mechanism, ZERO_OUT, 8, halves=halves) for halves in (ISSUED, ACCEPTED))
    assert issued is not None
    assert accepted is not None
    assert 0 < issued - accepted < issued / 10**7
    assert divergence(mechanism, ZERO_OUT, 8) == issued
    own, least = (price(m.SelfComposed(9, mechanism), ZERO_OUT, (8,), halves) for halves in (ISSUED, ACCEPTED))
    assert own[0] is not None
    assert least[0] is not None
    assert own == price(m.SelfComposed(9, mechanism), ZERO_OUT, (8,))
    assert own[0] > least[0]


def test_a_part_that_is_infinite_makes_the_whole_so() -> None:
    """A group whose doublings pass the greatest order: alone, among others, and each of many times."""
    curve = m.Group(3, m.Zcdp(ZERO_OUT, rho=Fraction(1, 4), xi=Fraction(1, 8)))
    assert divergence(curve, ZERO_OUT, 64) is not None
    assert divergence(curve, ZERO_OUT, 65) is None
    assert divergence(m.Composed((m.Gaussian(Fraction(3)), curve)), ZERO_OUT, 65) is None
    assert divergence(m.SelfComposed(2, curve), ZERO_OUT, 65) is None
    assert price(m.Composed((m.Gaussian(Fraction(3)), curve)), ZERO_OUT, (64, 65))[1] is None


def test_steps_add_up() -> None:
    """Sampled ones with their slack, of one record and of a group; drawn without replacement too."""
    for one, seven in (
        (STEP, m.PoissonGaussian(Fraction(1, 3), Fraction(1), 7)),
        (m.Group(2, STEP), m.Group(2, m.PoissonGaussian(Fraction(1, 3), Fraction(1), 7))),
    ):
        alone = divergence(one, ZERO_OUT, 4)
        assert alone is not None
        assert divergence(seven, ZERO_OUT, 4) == 7 * alone
    drawn = [divergence(m.SampledWithoutReplacement(Fraction(9), 1_000, 10, steps), REPLACED, 4) for steps in (1, 7)]
    assert drawn[0] is not None
    assert drawn[1] == 7 * drawn[0]


@pytest.mark.parametrize("delta", [Fraction(1, 2), Fraction(1, 1483), Fraction(1, 10**6), Fraction(1, 10**11)])
@pytest.mark.parametrize("order", [2, 3, 7, 64, 256])
def test_a_conversion_is_rounded_down_and_one_unit_less(order: int, delta: Fraction) -> None:
    """Of 2^-40 nat, by 50 digits."""
    share = WIDE.log(WIDE.mpf(delta.numerator) / delta.denominator * order)
    exact = share / (order - 1) - WIDE.log(1 - WIDE.mpf(1) / order)
    assert conversion(order, delta) == Fraction(int(WIDE.floor(exact * NAT)) - 1, NAT)


@pytest.mark.parametrize(
    ("value", "units"), [("0", 1), ("1", 2**60 + 1), ("0.3", 345876451382054093 + 1), ("1e-30", 2), ("-3", 0)]
)
def test_a_value_of_60_digits_is_rounded_up_and_one_unit_more(value: str, units: int) -> None:
    """Of 2^-60; never below 0."""
    assert round_up(Decimal(value)) == Fraction(units, 2**60)
