"""Find the noise for a target (ε, δ), or the steps for a given noise. Every answer was itself evaluated."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Final

from ledger.accounting.report import told_epsilon
from ledger.malformed import Malformed
from ledger.mechanism import NOISE_MAX, STEPS_MAX, PoissonGaussian

_PLACES: Final = 10_000


def calibrate_noise(
    probability: Fraction, steps: int, epsilon: Fraction, delta: Fraction, relation: str = "REPLACE_SPECIAL"
) -> Fraction:
    """The least noise multiplier, to four decimals, for which ``steps`` sampled steps keep (ε, δ).

    Raises:
        Malformed: if no permitted noise multiplier is enough.
    """

    def keeps(noise: int) -> bool:
        return _keeps(PoissonGaussian(probability, Fraction(noise, _PLACES), steps), epsilon, delta, relation)

    low, high = 100, _PLACES
    while not keeps(high):
        low, high = high, high * 2
        if high > NOISE_MAX * _PLACES:
            raise Malformed("epsilon", "cannot be kept by any permitted noise multiplier")
    return Fraction(_least(keeps, low, high), _PLACES)


def calibrate_steps(
    probability: Fraction, noise: Fraction, epsilon: Fraction, delta: Fraction, relation: str = "REPLACE_SPECIAL"
) -> int:
    """The most sampled steps at this noise that keep (ε, δ).

    Raises:
        Malformed: if not even one step does.
    """

    def exceeds(steps: int) -> bool:
        return not _keeps(PoissonGaussian(probability, noise, steps), epsilon, delta, relation)

    if exceeds(1):
        raise Malformed("epsilon", "cannot be kept by even one step of this noise")
    low, high = 1, 2
    while high <= STEPS_MAX and not exceeds(high):
        low, high = high, high * 2
    if high > STEPS_MAX:
        if not exceeds(STEPS_MAX):
            return STEPS_MAX
        high = STEPS_MAX
    return _least(exceeds, low, high) - 1


def _keeps(mechanism: PoissonGaussian, epsilon: Fraction, delta: Fraction, relation: str) -> bool:
    try:
        return told_epsilon(mechanism, delta, relation) <= epsilon
    except Malformed:
        return False


def _least(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The least number for which a monotone test holds, which it does not at ``low`` and does at ``high``."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
