"""The one-run audit: a lower bound on ε from one run that was fed canaries by coin flips.

Steinke, Nasr, Jagielski 2023 (arXiv 2305.08846, section 5). Each of m canaries is put into the data or left out by
a fair coin of its own; the model is trained once; an auditor who sees what was released guesses of up to r canaries, as
it chooses, whether they were in. If the run is (ε, δ)-differentially private then, whatever else is in the data,

    P[at least v right] <= P[W >= v] + 2 m δ · max over 1 <= i <= v of P[v - i <= W < v] / i,

W binomial of r trials with chance e^ε / (1 + e^ε) each. An ε at which what was seen is less likely than the doubt
allowed is disproved. A bound near 0 proves nothing; one above the ledger's ε proves that something is wrong.

Decimal arithmetic, and no floats: every machine finds the same, so an entry that records it is verified exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final

from ledger.mechanisms.audited_plan import CANARIES_MAX, GUESSES_MAX
from ledger.wire.malformed import Malformed

DOUBT: Final = Fraction(1, 20)
"""The chance of a bound that is too high, over coins and noise."""
PLACES: Final = 100
"""Hundredths of ε are tried one after the other."""
_EPSILON_MAX: Final = 64
_DIGITS: Final = Context(prec=50, Emin=-999_999, Emax=999_999)
_CAUTION: Final = Decimal("1e-40")
"""Relative; far above the rounding of so many operations of 50 digits."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What an auditor reached.

    Attributes:
        canaries: how many coins were flipped. guesses: for how many canaries the auditor guessed; their number,
        or the scores from which it speaks, were fixed before the coins were looked at. correct: how often rightly.
    """

    canaries: int
    guesses: int
    correct: int

    def __post_init__(self) -> None:
        """Hold it to its bounds. Raises: Malformed."""
        if not 1 <= self.canaries <= CANARIES_MAX:
            raise Malformed("canaries", f"must lie between 1 and {CANARIES_MAX}")
        if not 0 <= self.guesses <= min(self.canaries, GUESSES_MAX):
            raise Malformed("guesses", f"must lie between 0 and the canaries, {GUESSES_MAX} at most")
        if not 0 <= self.correct <= self.guesses:
            raise Malformed("correct", "must lie between 0 and the guesses")


def chance(seen: Tally, epsilon: Fraction, delta: Fraction) -> Decimal:
    """At most this likely is it that an (ε, δ)-private run gives an auditor as much as was seen, or more."""
    trials, right, ctx = seen.guesses, seen.correct, _DIGITS
    odds = ctx.exp(-_decimal(epsilon))
    # The chances of trials, trials - 1, ... right ones: each follows from the one before.
    likely = ctx.power(ctx.divide(Decimal(1), ctx.add(Decimal(1), odds)), trials)
    tail = below = steepest = Decimal(0)
    for count in range(trials, -1, -1):
        if count >= right:
            tail = ctx.add(tail, likely)
        else:
            below = ctx.add(below, likely)
            steepest = max(steepest, ctx.divide(below, Decimal(right - count)))
        ways = ctx.divide(Decimal(count), Decimal(trials - count + 1))
        likely = ctx.multiply(ctx.multiply(likely, odds), ways)
    by_delta = ctx.multiply(ctx.multiply(Decimal(2 * seen.canaries), _decimal(delta)), steepest)
    whole = ctx.multiply(ctx.add(tail, by_delta), 1 + _CAUTION)
    return min(Decimal(1), whole)


def disproves(seen: Tally, epsilon: Fraction, delta: Fraction, doubt: Fraction = DOUBT) -> bool:
    """Whether a run that shows so much is not (ε, δ)-private, with a chance of at most ``doubt`` to say so wrongly."""
    return chance(seen, epsilon, delta) < _decimal(doubt)


@lru_cache(maxsize=1_024)
def epsilon_least(seen: Tally, delta: Fraction, doubt: Fraction = DOUBT) -> Fraction:
    """The lower bound: ε in hundredths up to which every one is disproved; 0 if none is.

    It exceeds the true ε with a chance of at most ``doubt``: the bound passes the true ε only by disproving the next
    hundredth, at which the run is private too.

    Raises:
        Malformed: for a δ outside [0, 1) or a doubt outside (0, 1).
    """
    if not 0 <= delta < 1:
        raise Malformed("delta", "must be at least 0 and less than 1")
    if not 0 < doubt < 1:
        raise Malformed("doubt", "must lie between 0 and 1")
    place = 0
    while place <= PLACES * _EPSILON_MAX and disproves(seen, Fraction(place, PLACES), delta, doubt):
        place += 1
    return Fraction(max(0, place - 1), PLACES)


def _decimal(number: Fraction) -> Decimal:
    return _DIGITS.divide(Decimal(number.numerator), Decimal(number.denominator))
