"""Private selection (hyperparameter tuning): RDP of running a mechanism a random number of times, releasing the best.

Papernot, Steinke 2022: Theorem 2 for a truncated negative binomial number, Theorem 6 for a Poisson one. The number
is secret and drawn beforehand; "stop when it is good" is another mechanism, and has no price.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

from ledger.accounting.renyi_closed_forms import WIDE, decimal, over, round_up

OTHER_ORDERS = (*range(2, 65), 96, 128, 192, 256)
"""Orders among which the theorems' second order is looked for; any is valid."""
Inner = Callable[[int], Fraction | None]
"""The Rényi loss of one repetition at an order, None where it is infinite."""


def selected(inner: Inner, mean: Fraction, shape: str, order: int) -> Fraction | None:
    """The loss at ``order``, rounded up; None where it is infinite.

    A Rényi divergence never falls as its order grows, so what is proven at a greater order holds at this one too: at
    small orders the number of repetitions would weigh too much.
    """
    curve = [(at, rho) for at in OTHER_ORDERS if (rho := inner(at)) is not None]
    greater = [(at, own) for at, own in ((order, inner(order)), *curve) if at >= order and own is not None]
    if not curve or not greater:
        return None
    log_mean = WIDE.ln(decimal(mean))
    extra = _poisson(curve, mean) if shape == "poisson" else _binomial(curve, mean, int(shape))
    return min(own + extra(at) + round_up(over(log_mean, at - 1)) for at, own in greater)


def _binomial(curve: list[tuple[int, Fraction]], mean: Fraction, shape: int) -> Callable[[int], Fraction]:
    """The least over λ̂ of (1 + η)·((1 - 1/λ̂)·ρ(λ̂) + log(1/γ)/λ̂), for the γ at which E[K] is the mean."""
    rate = decimal(mean) if shape == 1 else _inverse_gamma(mean)
    log_rate = round_up(WIDE.ln(rate))
    least = min((1 + shape) * (Fraction(at - 1, at) * rho + log_rate / at) for at, rho in curve)
    return lambda _: least


def _inverse_gamma(mean: Fraction) -> Decimal:
    """1/γ of the logarithmic distribution with E[K] = (1/γ - 1)/log(1/γ), never below the exact one."""
    target, low, high = decimal(mean), Decimal(1), Decimal(2)

    def expected(rate: Decimal) -> Decimal:
        return WIDE.divide(WIDE.subtract(rate, Decimal(1)), WIDE.ln(rate))

    while expected(high) < target:
        low, high = high, high * 2
    for _ in range(100):
        middle = WIDE.divide(WIDE.add(low, high), Decimal(2))
        low, high = (middle, high) if expected(middle) < target else (low, middle)
    return high


def _poisson(curve: list[tuple[int, Fraction]], mean: Fraction) -> Callable[[int], Fraction]:
    """μ·δ̂, where one repetition is (ε̂, δ̂)-DP at ε̂ = log(1 + 1/(λ - 1)).

    δ̂ from the Rényi loss by Canonne, Kamath, Steinke 2020, Proposition 12: e^((α-1)(ρ - ε̂))/α·(1 - 1/α)^(α-1).
    """
    lines = []
    for at, rho in curve:
        keep = WIDE.add(decimal(rho), WIDE.ln(decimal(Fraction(at - 1, at))))
        lines.append((Decimal(at - 1), WIDE.subtract(WIDE.multiply(keep, Decimal(at - 1)), WIDE.ln(Decimal(at)))))

    def extra(order: int) -> Fraction:
        epsilon = WIDE.ln(decimal(Fraction(order, order - 1)))
        exponent = min(WIDE.subtract(start, WIDE.multiply(slope, epsilon)) for slope, start in lines)
        # Of a great loss e^x has as many digits as the loss has units: no number is made of them, only to be cut to 1.
        return mean if exponent >= 0 else mean * min(Fraction(1), round_up(WIDE.exp(exponent)))

    return extra
