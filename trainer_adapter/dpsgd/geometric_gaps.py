"""Gaps between the records that enter a Poisson draw, exactly: as many words as records enter, not as there are.

Between two that enter lies a geometric number of those that do not: P(gap >= m) = (1 - p)^m, so for U uniform in (0, 1)
the gap is floor(ln U / ln(1 - p)) (Devroye 1986, "Non-Uniform Random Variate Generation", section X.2). U is a real
number, of which a 64-bit word gives the first bits (lazily, as in Bringmann and Friedrich 2013, "Exact and efficient
generation of geometric random variates and random graphs"): where float64's error and the bits that are not known yet
leave two integers possible, more words are drawn and logarithms taken in 80 decimal digits. So the gap's distribution
is exact, and the probability is p itself, a multiple of 2^-64.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trainer_adapter.dpsgd.csprng import Stream

_DIGITS: Final = 80
_OFF: Final = Decimal(10) ** -70
"""Relative, far above the rounding of two logarithms and a quotient."""


def gaps(stream: Stream, count: int, below: int, most: int) -> NDArray[np.int64]:
    """Independent gaps at probability ``below`` / 2^64, shape (count,), int64; a longer one is given as ``most``.

    Args:
        below: from 1 to 2^63.
    """
    words = stream.words(count)
    rate = np.log1p(-(below / 2.0**64))
    uniform = (words.astype(np.float64) + 0.5) / 2.0**64
    drawn = np.log(uniform) / rate
    # What words leave open, 2^-64 of U; rounding of U and of its logarithm near 1; rounding of logarithms and quotient.
    off = (2.0**-64 / uniform + 2.0**-51) / -rate + drawn * 2.0**-48
    low, high = np.floor(drawn - off), np.floor(drawn + off)
    result: NDArray[np.int64] = np.clip(low, 0.0, float(most)).astype(np.int64)
    for place in np.flatnonzero((low != high) & (low < most)):
        result[place] = _exact(stream, int(words[place]), below, most)
    return result


def _exact(stream: Stream, word: int, below: int, most: int) -> int:
    """The gap of a uniform number that begins with this word."""
    bits = 64
    with localcontext() as context:
        context.prec = _DIGITS
        rate = (1 - Decimal(below) / Decimal(2**64)).ln()
        while True:
            low = _floor(Decimal(word + 1) / Decimal(2**bits), rate, -1)
            high = _floor(Decimal(word) / Decimal(2**bits), rate, 1)
            if low is not None and (low == high or low >= most):
                return min(low, most)
            word, bits = word << 64 | int(stream.words(1)[0]), bits + 64


def _floor(uniform: Decimal, rate: Decimal, sign: int) -> int | None:
    """What the gap is at least (sign -1) or at most (1); None for a number that may be zero."""
    return int(uniform.ln() / rate * (1 + sign * _OFF)) if uniform else None
