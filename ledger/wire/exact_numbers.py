"""Privacy loss as integers, and exact numbers as strings.

A loss is counted in units of 2^-40 nat, a δ in units of 2^-52. Costs round up, capacities round down.
Numbers enter and leave as strings that are exact rationals; a float never crosses this module's border.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

from ledger.wire.malformed import Malformed

NAT: Final = 1 << 40
"""Loss units in one nat."""
DELTA_ONE: Final = 1 << 52
"""δ units in a probability of one; finer than a loss, because a δ of 1e-9 must keep several digits."""
LOSS_MAX: Final = 1 << 48
"""256 nat. A finite loss beyond it counts as infinite (overstated, never understated)."""
EPSILON_MAX: Final = Fraction(128)
"""The largest ε a budget may promise; beyond it the promise means nothing."""
DELTA_MIN: Final = Fraction(1, 10**11)
"""Each PLD composition adds up to 1e-15 of infinite mass, so an ε below this δ would be infinite or wrong: no run
could be reported under such a budget."""
DIGITS_MAX: Final = 18
PART_DIGITS: Final = 6
"""The significant digits of a part of a budget or of a cap."""

_DECIMAL = re.compile(r"(0|[1-9][0-9]{0,17})(\.[0-9]{0,17}[1-9])?\Z")
_OTHER_SPELLING = re.compile(r"[0-9]{1,18}\.[0-9]{1,18}\Z")
_RATIO = re.compile(r"([1-9][0-9]{0,17})/([1-9][0-9]{0,17})\Z")


def parse_number(value: object, field: str) -> Fraction:
    """Read a non-negative exact number: a decimal (``"2.5"``) or a ratio in lowest terms (``"1/186"``).

    The exact inverse of :func:`format_number`: each number has one spelling.

    Raises:
        Malformed: for anything but that one spelling; ``1.0``, ``1e-5``, ``+1``, ``2/4`` and ``NaN`` included.
    """
    if not isinstance(value, str):
        raise Malformed(field, f'must be a number in quotes, as "0.5", not {type(value).__name__}')
    try:
        return _number(value)
    except Malformed as error:
        raise error.under(field) if field else error from None


@lru_cache(maxsize=4_096)
def _number(value: str) -> Fraction:
    if not (_DECIMAL.match(value) or _RATIO.match(value)):
        if value.startswith("-"):
            raise Malformed("", f"{value[:40]!r} is negative: must be positive")
        if _OTHER_SPELLING.match(value):
            raise Malformed("", f"write {value!r} as {format_number(Fraction(value))!r}")
        raise Malformed("", f"{value[:40]!r} is not a plain decimal or ratio (as '0.5', '1/186')")
    number = Fraction(value)
    spelling = format_number(number)
    if spelling != value:
        raise Malformed("", f"write {value!r} as {spelling!r}")
    return number


def parse_positive(value: object, field: str) -> Fraction:
    """Read a number greater than zero. Raises: Malformed."""
    number = parse_number(value, field)
    if number == 0:
        raise Malformed(field, "must be greater than 0")
    return number


@lru_cache(maxsize=4_096)
def format_number(number: Fraction) -> str:
    """Spell a non-negative rational: as a decimal when it ends within 18 places, else as ``p/q``."""
    rest, places = number.denominator, 0
    while places < DIGITS_MAX and (common := math.gcd(rest, 10)) > 1:
        rest //= common
        places += 1
    if rest > 1:
        return f"{number.numerator}/{number.denominator}"
    return _fixed_point(number.numerator * 10**places // number.denominator, places)


def ceil_units(nats: Fraction) -> int:
    """A cost in loss units, rounded up."""
    return -((-nats.numerator * NAT) // nats.denominator)


def ceil_slack(delta: Fraction) -> int:
    """A part of δ in δ units, rounded up."""
    return -((-delta.numerator * DELTA_ONE) // delta.denominator)


def floor_units(nats: Fraction) -> int:
    """A capacity in loss units, rounded down."""
    return (nats.numerator * NAT) // nats.denominator


def floor_digits(number: Fraction, digits: int) -> Fraction:
    """The greatest number of so many significant digits that is not above another, which is not negative."""
    if not number:
        return number
    scale = Fraction(1)
    while number * scale < 10 ** (digits - 1):
        scale *= 10
    while number * scale >= 10**digits:
        scale /= 10
    return (number * scale).__floor__() / scale


def equal_part(number: Fraction, parts: int) -> Fraction:
    """One of so many equal parts, rounded down to six digits; the number itself if there is one part."""
    return number if parts == 1 else floor_digits(number / parts, PART_DIGITS)


def ceil_decimal(number: Fraction, places: int = 4) -> str:
    """A loss reported to people: ``places`` digits after the point, rounded up."""
    return _fixed_point(-((-number.numerator * 10**places) // number.denominator), places)


def _fixed_point(scaled: int, places: int) -> str:
    sign, scaled = ("-", -scaled) if scaled < 0 else ("", scaled)
    digits = str(scaled).rjust(places + 1, "0")
    return f"{sign}{digits[:-places]}.{digits[-places:]}" if places else f"{sign}{digits}"
