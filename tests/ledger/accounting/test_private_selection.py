"""The price of selection, at 50 digits: the bounds of Papernot and Steinke, evaluated another way."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import pytest

from ledger.accounting.private_selection import OTHER_ORDERS, selected
from ledger.accounting.renyi_closed_forms import WIDE as SIXTY
from ledger.accounting.renyi_closed_forms import decimal, over, round_up, sampled_group

WIDE = mpmath.mp.clone()
WIDE.dps = 50


def number(value: Fraction) -> Any:  # noqa: ANN401 - mpmath has no types
    """As mpmath has it."""
    return WIDE.mpf(value.numerator) / value.denominator


@cache
def inverse_gamma(mean: Fraction) -> Any:  # noqa: ANN401 - mpmath has no types
    """The r at which (r - 1)/log(r) is the mean."""
    return WIDE.findroot(lambda rate: (rate - 1) / WIDE.log(rate) - number(mean), 4 * mean)


def extra(rho: Fraction, mean: Fraction, shape: str, order: int) -> Any:  # noqa: ANN401 - mpmath has no types
    """What selection adds to the loss of one repetition, which is ρ·α, and to the log of the mean."""
    slope, expected = number(rho), number(mean)
    if shape == "poisson":
        level = WIDE.log(WIDE.mpf(order) / (order - 1))
        lost = [
            WIDE.exp((at - 1) * (slope * at - level)) / at * (1 - WIDE.mpf(1) / at) ** (at - 1) for at in OTHER_ORDERS
        ]
        return expected * min(WIDE.mpf(1), *lost)
    rate = inverse_gamma(mean) if shape == "0" else expected
    known = [(1 - WIDE.mpf(1) / at) * slope * at + WIDE.log(rate) / at for at in OTHER_ORDERS]
    return (1 + int(shape)) * min(known)


@pytest.mark.parametrize("shape", ["0", "1", "poisson"])
@pytest.mark.parametrize("mean", [Fraction(3, 2), Fraction(1_000)])
@pytest.mark.parametrize(("rho", "order"), [(Fraction(1, 10**4), 96), (Fraction(1, 100), 128), (Fraction(2), 192)])
def test_selection_costs_what_its_theorem_says(shape: str, mean: Fraction, rho: Fraction, order: int) -> None:
    """At this order, or a greater one if that says less; rounded up by a few units of 2^-60."""
    found = selected(lambda at: rho * at, mean, shape, order)
    assert found is not None
    exact = min(
        number(rho) * at + extra(rho, mean, shape, at) + WIDE.log(number(mean)) / (at - 1)
        for at in {order, *OTHER_ORDERS}
        if at >= order
    )
    assert exact <= number(found) <= exact + 2_000 * WIDE.mpf(2) ** -60


def cut_afterwards(curve: dict[int, Fraction], mean: Fraction, order: int) -> Fraction:
    """The loss with a Poisson number where e^x is computed however great it is, and then cut to 1."""
    lines = []
    for at, rho in curve.items():
        keep = SIXTY.add(decimal(rho), SIXTY.ln(decimal(Fraction(at - 1, at))))
        lines.append((at - 1, SIXTY.subtract(SIXTY.multiply(keep, Decimal(at - 1)), SIXTY.ln(Decimal(at)))))
    found = []
    for at, own in curve.items():
        if at >= order:
            level = SIXTY.ln(decimal(Fraction(at, at - 1)))
            exponent = min(SIXTY.subtract(start, SIXTY.multiply(Decimal(slope), level)) for slope, start in lines)
            chance = min(Fraction(1), round_up(SIXTY.exp(exponent)))
            found.append(own + mean * chance + round_up(over(SIXTY.ln(decimal(mean)), at - 1)))
    return min(found)


NEAR_ONE = Fraction("1.673976433571671546273683248910180567654")
"""At order 4, with order 2 as the only other one, the loss at which e^x is 1: ln 4 + ln 4/3."""


@pytest.mark.parametrize("mean", [Fraction(1), Fraction(5, 2), Fraction(10**6)])
@pytest.mark.parametrize("order", [2, 4, 65, 256])
def test_what_is_cut_to_one_is_the_same_without_its_digits(mean: Fraction, order: int) -> None:
    """Of losses small and great, and of those just below and above the cut: the very numbers of before."""
    for exponent in range(-9, 4):
        for rho in (Fraction(10) ** exponent, 3 * Fraction(10) ** exponent):
            curve = {at: rho * at for at in sorted({order, *OTHER_ORDERS})}
            assert selected(curve.get, mean, "poisson", order) == cut_afterwards(curve, mean, order)
    for more in (Fraction(sign, 10**places) for places in (3, 19, 38) for sign in (-1, 0, 1)):
        near = {2: NEAR_ONE + more, 4: Fraction(7)}
        assert selected(near.get, mean, "poisson", min(order, 4)) == cut_afterwards(near, mean, min(order, 4))


def test_selection_of_what_is_infinite_is_infinite() -> None:
    """At every order from the one that is asked for on, or at all."""

    def up_to_ten(at: int) -> Fraction | None:
        return Fraction(at, 10) if at <= 10 else None

    assert selected(up_to_ten, Fraction(5), "1", 20) is None
    assert selected(lambda _: None, Fraction(5), "1", 4) is None
    at_ten = selected(up_to_ten, Fraction(5), "1", 10)
    assert at_ten is not None
    assert at_ten > 1


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("order", [2, 7])
def test_a_group_of_sampled_records_is_its_mean_over_how_many_were_drawn(k: int, order: int) -> None:
    """Σ C(k,j)·q^j·(1-q)^(k-j)·e^(α(α-1)j²/(2σ²)), as a logarithm over α - 1."""
    q, noise = Fraction(1, 5), Fraction(7, 2)
    whole = WIDE.fsum(
        WIDE.binomial(k, j)
        * number(q) ** j
        * number(1 - q) ** (k - j)
        * WIDE.exp(order * (order - 1) * j * j / (2 * number(noise) ** 2))
        for j in range(k + 1)
    )
    exact = WIDE.log(whole) / (order - 1)
    assert exact <= number(sampled_group(noise, q, k, order)) <= exact + 3 * WIDE.mpf(2) ** -60
