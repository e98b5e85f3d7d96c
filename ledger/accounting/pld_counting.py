"""How many equal sampled Gaussian steps keep (ε, δ), by their privacy loss distribution in both directions.

A count is searched for here and may be checked elsewhere, where arithmetic differs in its last places. To check it is
to evaluate it once, by whichever means proves it: its δ with the noise of the distribution once, or Rényi with half of
its slack, each of which is sound by itself. To issue it takes ``Distribution.issued``, or the whole slack. So
every machine accepts it whose δ differs by no more than what is between the two.
"""

from __future__ import annotations

import math
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from typing import Final

from ledger.accounting import pld_mechanisms
from ledger.accounting.pld import NOISE_ISSUED, NOISE_PER_STEP, POINTS_ISSUED, Distribution, GridTooLarge
from ledger.accounting.renyi import ACCEPTED, ISSUED, divergence
from ledger.accounting.renyi_closed_forms import conversion
from ledger.accounting.rounding import float_down
from ledger.mechanisms.mechanism import PoissonGaussian
from ledger.mechanisms.price_proofs import ZERO_OUT

COUNT_MAX: Final = 10**9
_ORDERS: Final = (*range(2, 33), 40, 48, 64)
_INTERVALS: Final = (1e-3, 1e-4)
"""At ten million steps the next finer grid has more noise than δ."""
_FINE_ENOUGH: Final = 20_000
"""The computed count is the greatest within one part in this many."""
_STABLE: Final = 1.01


@lru_cache(maxsize=4_096)
def count_capacity(step: PoissonGaussian, epsilon: Fraction, delta: Fraction) -> int:
    """The greatest number of these steps found to keep (ε, δ) with room for :func:`count_keeps` on another machine.

    Each candidate was itself evaluated. A discretisation is pessimistic, so the finest one that still changes the
    number by a hundredth decides.
    """
    best = certain = _by_renyi(step, epsilon, delta, ISSUED)
    coarser = 0
    for interval in _INTERVALS:
        count = _search(step, float_down(epsilon), float_down(delta), interval, best)
        best = max(best, count)
        if certain < count < coarser * _STABLE:
            break
        coarser = count
    return best


@lru_cache(maxsize=4_096)
def estimate_count(step: PoissonGaussian, epsilon: Fraction, delta: Fraction) -> int:
    """A number near :func:`count_capacity` and hardly above it, from the coarsest grid alone: for searches."""
    certain = _by_renyi(step, epsilon, delta, ISSUED)
    return max(certain, _search(step, float_down(epsilon), float_down(delta), _INTERVALS[0], certain))


@lru_cache(maxsize=4_096)
def count_keeps(step: PoissonGaussian, epsilon: Fraction, delta: Fraction, count: int) -> bool:
    """Whether ``count`` steps keep (ε, δ): by RDP, or on one of the grids."""
    if count > COUNT_MAX:
        return False
    return count <= _by_renyi(step, epsilon, delta, ACCEPTED) or any(
        _keeps(step, float_down(epsilon), float_down(delta), count, interval) for interval in _INTERVALS
    )


def _keeps(step: PoissonGaussian, epsilon: float, delta: float, count: int, interval: float) -> bool:
    try:
        single = pld_mechanisms.repeated(step, ZERO_OUT, 1, interval)
    except GridTooLarge:
        return False
    return _delta(single, count, epsilon, delta, 1) <= delta


def _delta(single: Distribution, count: int, epsilon: float, delta: float, times: int) -> float:
    """The δ at ε with ``times`` the noise; infinite if that noise alone exceeds δ, or a grid its limit."""
    import numpy as np

    if times * NOISE_PER_STEP * count >= delta:
        return math.inf
    try:
        composed = single.self_compose(count)
    except GridTooLarge:
        return math.inf
    if times == 1:
        return composed.delta(epsilon)
    return math.inf if composed.points > POINTS_ISSUED else float(composed.issued(np.asarray([epsilon]))[0])


def _by_renyi(step: PoissonGaussian, epsilon: Fraction, delta: Fraction, halves: int) -> int:
    """A number that is certain to fit, from which to look further."""
    curve = ((order, divergence(step, ZERO_OUT, order, halves=halves)) for order in _ORDERS)
    rooms = ((epsilon + conversion(order, delta), rho) for order, rho in curve)
    return min(COUNT_MAX, max((int(room / rho) for room, rho in rooms if rho and room > 0), default=0))


def _search(step: PoissonGaussian, epsilon: float, delta: float, interval: float, start: int) -> int:
    """Regula falsi on log δ against log n within a bracket, halving it where that is too slow."""
    try:
        single = pld_mechanisms.repeated(step, ZERO_OUT, 1, interval)
    except GridTooLarge:
        return start

    def excess(count: int) -> float:
        return math.log(_delta(single, count, epsilon, delta, NOISE_ISSUED)) - math.log(delta)

    low, high = max(1, start), max(2, start + start // 4)
    below = excess(low)
    if below > 0:
        low, high, below = 0, low, -1.0
        above = excess(high)
    else:
        while (above := excess(high)) <= 0:
            low, below, high = high, above, 2 * high
            if high > COUNT_MAX:
                return min(low, COUNT_MAX)
    halve = False
    while high - low > max(1, low // _FINE_ENOUGH):
        part = 0.5 if halve or low == 0 or math.isinf(above) else below / (below - above)
        middle = min(high - 1, max(low + 1, int(low * (high / max(1, low)) ** part)))
        width, value = high - low, excess(middle)
        if value <= 0:
            low, below = middle, value
        else:
            high, above = middle, value
        halve = (high - low) * 2 > width
    return low


@lru_cache(maxsize=4_096)
def count_epsilon(step: PoissonGaussian, count: int, delta: Fraction) -> Fraction | None:
    """An ε that ``count`` steps keep at δ, rounded up to 2^-40; None if it is infinite."""
    least = math.inf
    for interval in _INTERVALS:
        with suppress(GridTooLarge):
            least = min(least, pld_mechanisms.repeated(step, ZERO_OUT, count, interval).epsilon(float_down(delta)))
    return None if math.isinf(least) else Fraction(least)
