"""Between exact numbers and the library's floats: every probability rounded up, every noise and δ rounded down."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from ledger.mechanisms.mechanism import PoissonGaussian

if TYPE_CHECKING:
    from dp_accounting import DpEvent


def float_up(number: Fraction) -> float:
    """The least float that is at least the number."""
    value = float(number)
    return value if Fraction(value) >= number else math.nextafter(value, math.inf)


def float_down(number: Fraction) -> float:
    """The greatest float that is at most the number."""
    value = float(number)
    return value if Fraction(value) <= number else math.nextafter(value, 0.0)


def event(step: PoissonGaussian) -> DpEvent:
    """One step as dp_accounting describes it. Floats only: an integer noise multiplier is miscounted there."""
    import dp_accounting

    gaussian = dp_accounting.GaussianDpEvent(float_down(step.noise_multiplier))
    probability = min(1.0, float_up(step.probability))
    return gaussian if probability == 1.0 else dp_accounting.PoissonSampledDpEvent(probability, gaussian)
