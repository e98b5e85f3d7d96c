"""What a statistic costs, and its noise: its sensitivity to one record, and the mechanism that is charged.

A record that is zeroed out, added or removed moves a statistic's whole numbers by at most its sensitivity, and a
replaced one by twice that. Users and joined records are groups, which the charge prices.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Final, NamedTuple

from ledger.mechanisms.mechanism import BlackBox, Mechanism, Pure, Zcdp
from ledger.mechanisms.price_proofs import REPLACE
from ledger.mechanisms.statistics import (
    GRID,
    AreaUnderCurve,
    ClippedSum,
    Moments,
    PrivateCategories,
    Quantile,
    SquaredError,
    Statistic,
)

SCALE_SLACK: Final = 1 + Fraction(1, 1 << 29)
"""The scale of drawn noise exceeds what is charged for by less than this factor, which makes its tail heavier."""
_WIDE: Final = Context(prec=60)
_MARGIN: Final = Decimal("1e-40")
"""Far more than sixty digits lose, and far less than a count."""


class Sensitivity(NamedTuple):
    """The sensitivity of a statistic's vector of whole numbers to one record, present or absent.

    Attributes:
        l1: the greatest sum of absolute changes.
        l2_square: the greatest sum of squared changes.
        scores: for a quantile the greatest change of any candidate's score; else 0.
    """

    l1: int
    l2_square: int
    scores: int = 0


def sensitivity(statistic: Statistic) -> Sensitivity:
    """The table of statistics: what one record adds, for add-remove neighbours.

    - Counts, whether of all records, by edges, by categories, by true and predicted class, or by class and score: the
      cells are disjoint, so a record is in at most one, and adds 1 to it.
    - Clipped sums of d columns: a value x is clipped to [lower, upper] and rounded to ``GRID``·x/B, where B is the
      greater of |lower| and |upper|. So each of d numbers has at most the absolute value ``GRID``.
    - Moments of d columns: with z = (x - middle)/half of the clipped value, a record adds ``GRID``, and for each column
      ``GRID``·z and ``GRID``·z², rounded. As |z| <= 1, these are 1 + 2d numbers of at most the absolute value ``GRID``.
    - The area under the curve: with m the greater of the two bounds, a record adds m to the count of its class, and
      to (pairs won) - (pairs lost) at most one for each counted record of the other class: 2m together. Where its
      class is full, a record takes the place of the last one that counted: no count moves, and each of the two has
      between -m and m in the difference, so it moves by at most 2m. Squares are at most those of one number, 4m².
    - A squared error: a record adds ``GRID``·z², rounded, where z is its difference over the bound, 1 at most.
    - A quantile of level p/q: a candidate c has the score |(q - p)·#(x < c) - p·#(x > c)|, and one record changes what
      is inside by q - p, by -p or by nothing.

    Zero-out neighbours are no further apart: a record that is zeroed out adds nothing, like one that is not there.
    Where one record is replaced by another, one is removed and one added: twice as far, by the triangle inequality.
    For k records the same inequality gives k times as far, and k² times in squares.
    """
    match statistic:
        case ClippedSum():
            columns = len(statistic.columns)
            return Sensitivity(columns * GRID, columns * GRID**2)
        case Moments():
            numbers = 1 + 2 * len(statistic.columns)
            return Sensitivity(numbers * GRID, numbers * GRID**2)
        case SquaredError():
            return Sensitivity(GRID, GRID**2)
        case AreaUnderCurve():
            most = pair_weight(statistic)
            return Sensitivity(2 * most, 4 * most * most)
        case Quantile():
            level = statistic.level
            return Sensitivity(0, 0, max(level.numerator, level.denominator - level.numerator))
        case _:
            return Sensitivity(1, 1)


def mechanism_of(statistic: Statistic, relation: str) -> Mechanism:
    """The mechanism that a statistic is charged as: ε-DP, (ε, δ)-DP or ρ-zCDP, for one changed record.

    The noise is :func:`noise_of`, with the scale sensitivity over ε, or over √(2ρ).
    """
    if isinstance(statistic, PrivateCategories):
        assert statistic.epsilon is not None
        return BlackBox(delta=statistic.delta, epsilon=statistic.epsilon, relation=relation)
    if statistic.epsilon is not None:
        return Pure(epsilon=statistic.epsilon, relation=relation)
    assert statistic.rho is not None
    return Zcdp(relation=relation, rho=statistic.rho, xi=Fraction(0))


def pair_weight(statistic: AreaUnderCurve) -> int:
    """What a count of records is multiplied by, to be as far from its neighbour's as a difference of pairs is."""
    return max(statistic.negatives_max, statistic.positives_max)


class NoiseScale(NamedTuple):
    """The noise of a statistic, exactly; a program that rounds rounds up.

    Attributes:
        laplace: the scale b of discrete Laplace noise, P(x) ∝ e^(-|x|/b), on each number; None if there is none.
        gaussian_square: σ² of discrete Gaussian noise, P(x) ∝ e^(-x²/(2σ²)), on each number; None if there is none.
        selection: the scale b of permute-and-flip, which accepts a candidate with probability e^((best - score)/b);
            None if there is none.
    """

    laplace: Fraction | None = None
    gaussian_square: Fraction | None = None
    selection: Fraction | None = None


def noise_of(statistic: Statistic, relation: str) -> NoiseScale:
    """The least noise that makes a statistic the mechanism of :func:`mechanism_of`.

    - Discrete Laplace noise of scale b on integers is (Δ1/b)-DP (Ghosh, Roughgarden, Sundararajan 2012, Section 2; in
      several coordinates by the triangle inequality).
    - Discrete Gaussian noise of σ² on integers is Δ2²/(2σ²)-zCDP (Canonne, Kamath, Steinke 2020, Theorem 14).
    - Permute-and-flip of scale b is (2Δ/b)-DP (McKenna, Sheldon 2020, Theorem 1).
    """
    moved, times = sensitivity(statistic), 2 if relation == REPLACE else 1
    if statistic.rho is not None:
        return NoiseScale(gaussian_square=times**2 * moved.l2_square / (2 * statistic.rho))
    assert statistic.epsilon is not None
    if moved.scores:
        return NoiseScale(selection=2 * times * moved.scores / statistic.epsilon)
    return NoiseScale(laplace=times * moved.l1 / statistic.epsilon)


def threshold(statistic: PrivateCategories, relation: str) -> int:
    """The least noisy count with which a category is released.

    Noise is added to the counts of those categories alone that some record has: a stability-based histogram
    (Korolova, Kenthapadi, Mishra, Ntoulas 2009; Vadhan 2017, Theorem 3.5). Let one record of a
    category be there or not. If others have that category, the same counts get noise, and one of them differs by 1: ε
    with the scale 1/ε. If none has it, the answers differ only where it is released, which has the
    probability p = P(1 + X >= t) for the noise X; without it they have the same law. Either way round an event's
    probability changes by at most p then. So one record costs (ε, p).

    Where one record is replaced by another, one is removed and then one added: with the scale 2/ε each costs
    (ε/2, p), and both (ε, p·(1 + e^(ε/2))) (Vadhan 2017, Lemma 2.2).

    For discrete Laplace noise of scale b, P(X >= n) = e^(-n/b)/(1 + e^(-1/b)) for n >= 0: a sum of a geometric series.
    It grows with b, so it is taken at the greatest scale that may be drawn; the result is rounded up.
    """
    assert statistic.epsilon is not None
    replaced = relation == REPLACE
    scale = (2 if replaced else 1) / statistic.epsilon * SCALE_SLACK
    rate, down = _decimal(1 / scale, ROUND_FLOOR), _decimal(statistic.delta, ROUND_FLOOR)
    once = _WIDE.divide(down, 1 + _WIDE.exp(_decimal(statistic.epsilon / 2, ROUND_CEILING))) if replaced else down
    # The least n with e^(-n/b) <= p·(1 + e^(-1/b)).
    least = _WIDE.divide(-_WIDE.ln(_WIDE.multiply(once, 1 + _WIDE.exp(-rate))), rate)
    return 1 + max(0, int((least + max(Decimal(1), abs(least)) * _MARGIN).to_integral_value(ROUND_CEILING)))


def _decimal(number: Fraction, rounding: str) -> Decimal:
    return Context(prec=60, rounding=rounding).divide(Decimal(number.numerator), Decimal(number.denominator))
