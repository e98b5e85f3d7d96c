"""Strategies of correlated noise: the lower triangular Toeplitz matrix C with C w = z, by its coefficients.

    {"coefficients": ["0.52", "0.4", "0.35"], "kind": "banded"}
    {"decays": ["0.9", "0.5"], "kind": "buffered", "scales": ["0.2", "0.3"]}

*Banded*: the coefficients themselves, of four bands here; all after them are zero. *Buffered*: a buffered linear
Toeplitz matrix, BLT (Dvijotham, McMahan, Pillutla, Steinke, Thakurta 2024, arXiv 2404.16706): c_i = Σ_j scales_j
decays_j^(i - 1) for every i from 1, so that one vector a buffer remembers all earlier noise. A plan that names no
strategy takes the first coefficients of the square root of the matrix of prefix sums, c_i = c_(i-1) (2i - 1) / (2i).

A strategy costs what its column norm |c| is long, whatever it was optimised for: |c|² = 1 + Σ c_i² over the rows that
one contribution reaches, rounded up here. All that is asked beside is 1 ≥ c_1 ≥ c_2 ≥ ... ≥ 0, so that undoing C stays
tame: with p_i = c_(i-1) - c_i, none negative and of sum at most 1, (1 - x) c(x) = 1 - p(x), so 1 / c(x) = (1 - x) u(x)
where u = 1 / (1 - p) has u_0 = 1 and u_k = Σ p_i u_(k - i), all in [0, 1]. So every entry of C's inverse lies in [-1,
1]: w is never longer than all z before it together, and rounding it in float64 changes it by parts in 10^15 of that.
"""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from itertools import pairwise
from math import isqrt
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta

from ledger.wire.field_types import exact, rule
from ledger.wire.malformed import Malformed
from ledger.wire.records import AbstractRecordType, Record

BANDS_MAX: Final = 64
"""Steps that one step's noise is correlated with under a banded strategy, itself counted; so many vectors are kept."""
BUFFERS_MAX: Final = 16
"""Buffers of a buffered strategy, each a vector as long as the model."""
_ROOT_BITS: Final = 80
_POWER_BITS: Final = 256

Coefficient = Annotated[Fraction, exact(Fraction(0), Fraction(1))]
Decay = Annotated[Fraction, exact(Fraction(0), below=Fraction(1))]


class Strategy(Record, frozen=True, tag_field="kind", metaclass=AbstractRecordType):
    """A matrix C of non-increasing coefficients from 1 on."""

    @abstractmethod
    def column_square(self, rows: int) -> Fraction:
        """|c|² over the first ``rows`` rows, rounded up by at most 2^-160."""


class Banded(Strategy, frozen=True, tag="banded"):
    """c_1 to c_(bands - 1)."""

    coefficients: Annotated[tuple[Coefficient, ...], Meta(min_length=1, max_length=BANDS_MAX - 1)]

    def __post_init__(self) -> None:
        """Raises: Malformed, for a coefficient out of range or above the one before it."""
        super().__post_init__()
        for place, (before, after) in enumerate(pairwise(self.coefficients), 1):
            if after > before:
                raise Malformed(f"coefficients[{place}]", "must not be greater than the one before it")

    def column_square(self, rows: int) -> Fraction:
        """|c|², exact."""
        return 1 + sum((one * one for one in self.coefficients[: rows - 1]), Fraction(0))


class Buffered(Strategy, frozen=True, tag="buffered"):
    """A BLT: each buffer's share of the next coefficient, and what is left of it one row further down."""

    decays: Annotated[tuple[Decay, ...], Meta(min_length=1, max_length=BUFFERS_MAX)]
    scales: Annotated[tuple[Coefficient, ...], Meta(min_length=1, max_length=BUFFERS_MAX)]

    def __post_init__(self) -> None:
        """Raises: Malformed, for values out of range, scales of sum above 1, or not one scale a decay."""
        super().__post_init__()
        if len(self.scales) != len(self.decays):
            raise Malformed("scales", f"must be as many as the decays: {len(self.decays)}")
        if sum(self.scales) > 1:
            raise Malformed("scales", "must not be more than 1 together")

    def column_square(self, rows: int) -> Fraction:
        """|c|²: 1 + Σ_jk scales_j scales_k (1 - x^(rows - 1)) / (1 - x) with x = decays_j decays_k, rounded up."""
        buffers = [*zip(self.decays, self.scales, strict=True)]
        total = Fraction(1)
        for decay, scale in buffers:
            for other, another in buffers:
                total += _above(scale * another * _geometric_sum(decay * other, rows - 1))
        return total


def _geometric_sum(ratio: Fraction, terms: int) -> Fraction:
    """1 + x + ... + x^(terms - 1), never less: the power is rounded down at every product."""
    one = 1 << _POWER_BITS
    power, square, left = one, ratio.numerator * one // ratio.denominator, terms
    while left:
        if left & 1:
            power = power * square >> _POWER_BITS
        square = square * square >> _POWER_BITS
        left >>= 1
    return Fraction(one - power, one) / (1 - ratio)


def _above(number: Fraction) -> Fraction:
    one = 1 << _POWER_BITS - 56
    return Fraction(-(-number.numerator * one // number.denominator), one)


def square_root(bands: int) -> Banded:
    """The first coefficients of the power series of (1 - x)^(-1/2), exact (Fichtenberger, Henzinger, Upadhyay 2023)."""
    found = [Fraction(1)]
    for place in range(1, bands):
        found.append(found[-1] * Fraction(2 * place - 1, 2 * place))
    return Banded(tuple(found[1:]))


def root_above(square: Fraction) -> Fraction:
    """The root of a number of at least 1, rounded up by at most 2^-79."""
    scaled = -((-square.numerator << 2 * _ROOT_BITS) // square.denominator)
    root = isqrt(scaled)
    return Fraction(root + (root * root < scaled), 1 << _ROOT_BITS)


if TYPE_CHECKING:
    AnyStrategy = Strategy
else:
    AnyStrategy = Annotated[Banded | Buffered, rule("is no strategy: must be 'banded' or 'buffered'")]
