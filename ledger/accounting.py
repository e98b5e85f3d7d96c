"""Prices and tellings: the only room that imports dp_accounting and holds floats.

A float leaves it as an integer rounded up (a price) or as an exact fraction rounded up (an ε told to people).
dp_accounting and scipy take seconds to import, so they are imported when first needed.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ledger.loss import Price
from ledger.malformed import Malformed
from ledger.mechanism import NOISE_MAX, PoissonGaussian
from ledger.units import DELTA_MIN, LOSS_MAX, NAT

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from dp_accounting.pld import PLDAccountant

RELATIVE_SLACK: Final = Fraction(1, 10**9)
ABSOLUTE_SLACK: Final = Fraction(1, 10**12)
"""Per step. Against 60-digit arithmetic the library errs by at most 2.4e-13·max(1, log A) at integer orders, on
either side, and relatively by 4e-9 where a step loses less than 1e-16: both lie within these two."""
_INTERVALS: Final = (1e-4, 1e-5)
_PLD_EPSILON_MAX: Final = 256.0
"""Twice the largest budget. Where Rényi says more, a PLD's grid would take gigabytes and change no decision."""
_ORDERS: Final = [*range(2, 65), 96, 128, 192, 256]


def _float_up(number: Fraction) -> float:
    value = float(number)
    return value if Fraction(value) >= number else math.nextafter(value, math.inf)


def _float_down(number: Fraction) -> float:
    value = float(number)
    return value if Fraction(value) <= number else math.nextafter(value, 0.0)


def _event(mechanism: PoissonGaussian) -> DpEvent:
    """One step as dp_accounting describes it: probability rounded up, noise down."""
    import dp_accounting

    gaussian = dp_accounting.GaussianDpEvent(_float_down(mechanism.noise_multiplier))
    probability = min(1.0, _float_up(mechanism.probability))
    return gaussian if probability == 1.0 else dp_accounting.PoissonSampledDpEvent(probability, gaussian)


@lru_cache(maxsize=10_000)
def renyi_price(probability: Fraction, noise_multiplier: Fraction, orders: tuple[int, ...]) -> Price:
    """What one step costs at each order, in loss units rounded up; None where it is infinite.

    The Rényi divergence of the Poisson-sampled Gaussian at integer orders (Mironov, Talwar, Zhang 2019,
    Section 3.3), which bounds both directions of add-remove and zero-out neighbours. The price exceeds the exact
    divergence ρ by at most ``1.001e-9·ρ + 1.3e-12 nat + 2^-40 nat``, the library's own error included, and is
    never below it.

    Raises:
        ArithmeticError: if the library returns no number.
    """
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(orders=list(orders))
    accountant.compose(_event(PoissonGaussian(probability, noise_multiplier, 1)))
    return tuple(_units(float(rho)) for rho in accountant.rdp)


def _units(rho: float) -> int | None:
    if math.isnan(rho):
        raise ArithmeticError("the accountant returned no number")
    if math.isinf(rho):
        return None
    exact = Fraction(max(0.0, rho)) * (1 + RELATIVE_SLACK) + ABSOLUTE_SLACK
    units = -((-exact.numerator * NAT) // exact.denominator)
    return None if units > LOSS_MAX else units


@lru_cache(maxsize=4_096)
def told_epsilon(mechanism: PoissonGaussian, delta: Fraction, relation: str) -> Fraction:
    """The ε of this fixed run at δ, rounded up to a billionth: the lesser of PLD and Rényi.

    Connect-the-dots discretisation (Doroshenko et al. 2022) is pessimistic, most of all for many tiny steps: it
    is refined while Rényi says less. For telling people and for bounds on one run, never for admission:
    composing the exact curves of adaptively chosen runs is not a filter.

    Raises:
        Malformed: if δ is below 1e-11 or the ε is infinite.
    """
    if delta < DELTA_MIN:
        raise Malformed("delta", "must be at least 1e-11 for an ε to be told")
    # The library tells 0 where rounding made a divergence negative: that says nothing.
    renyi = _renyi_epsilon(mechanism, delta) or math.inf
    intervals = () if _PLD_EPSILON_MAX < renyi < math.inf else _INTERVALS
    epsilon = renyi
    for interval in intervals:
        epsilon = min(renyi, told := _pld_epsilon(mechanism, delta, relation, interval))
        if told <= renyi:
            break
    if not math.isfinite(epsilon):
        raise Malformed("noise_multiplier", "leaves an infinite ε at this δ")
    return Fraction(math.ceil(Fraction(epsilon) * 10**9), 10**9)


def _renyi_epsilon(mechanism: PoissonGaussian, delta: Fraction) -> float:
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(orders=_ORDERS)
    accountant.compose(_event(mechanism), mechanism.steps)
    return float(accountant.get_epsilon(_float_down(delta)))


def _pld_epsilon(mechanism: PoissonGaussian, delta: Fraction, relation: str, interval: float) -> float:
    accountant = _pld_accountant(relation, interval)
    accountant.compose(_event(mechanism), mechanism.steps)
    return float(accountant.get_epsilon(_float_down(delta)))


def _pld_accountant(relation: str, interval: float) -> PLDAccountant:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import PLDAccountant

    return PLDAccountant(NeighboringRelation[relation], value_discretization_interval=interval)


def calibrate_noise(
    probability: Fraction, steps: int, epsilon: Fraction, delta: Fraction, relation: str = "REPLACE_SPECIAL"
) -> Fraction:
    """The least noise multiplier, to four decimals, for which ``steps`` steps keep (ε, δ) by PLD.

    Bisection on a quantity that is monotone in the noise; every answer was itself evaluated.

    Raises:
        Malformed: if no permitted noise multiplier is enough.
    """
    low, high = 100, 10_000

    def fits(noise: int) -> bool:
        mechanism = PoissonGaussian(probability, Fraction(noise, 10_000), steps)
        if _renyi_epsilon(mechanism, delta) > _PLD_EPSILON_MAX:
            return False
        return _pld_epsilon(mechanism, delta, relation, _INTERVALS[0]) <= epsilon

    while not fits(high):
        low, high = high, high * 2
        if high > NOISE_MAX * 10_000:
            raise Malformed("epsilon", "cannot be kept by any permitted noise multiplier")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return Fraction(high, 10_000)
