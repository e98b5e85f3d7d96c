"""Between exact numbers and the library's floats: every probability rounded up, every noise and δ rounded down."""

from __future__ import annotations

import math
from fractions import Fraction


def float_up(number: Fraction) -> float:
    """The least float that is at least the number."""
    value = float(number)
    return value if Fraction(value) >= number else math.nextafter(value, math.inf)


def float_down(number: Fraction) -> float:
    """The greatest float that is at most the number."""
    value = float(number)
    return value if Fraction(value) <= number else math.nextafter(value, 0.0)
