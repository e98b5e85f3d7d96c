"""The one-run audit: a lower bound on ε from one run that was fed canaries by coin flips.

Steinke, Nasr, Jagielski 2023 (arXiv 2305.08846, section 5). Each of m canaries is put into the data or left out by
a fair coin of its own; the model is trained once; an auditor who sees what was released guesses of up to r canaries, as
it chooses, whether they were in. If the run is (ε, δ)-differentially private then, whatever else is in the data,

    P[at least v right] <= P[W >= v] + 2 m δ · max over 1 <= i <= v of P[v - i <= W < v] / i,

W binomial of r trials with chance e^ε / (1 + e^ε) each. An ε at which what was seen is less likely than the doubt
allowed is disproved. A bound near 0 proves nothing; one above the ledger's ε proves that something is wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.csprng import Stream

DOUBT: Final = Fraction(1, 20)
"""The chance of a bound that is too high, over coins and noise."""
CANARIES_MAX: Final = 1 << 22
_PLACES: Final = 100
"""Hundredths of ε are tried one after the other."""
_EPSILON_MAX: Final = 64
_CAUTION: Final = 1e-6
"""Relative; far above the rounding of sums of at most 2^22 float64 terms in logarithms."""


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
        if not 0 <= self.guesses <= self.canaries:
            raise Malformed("guesses", "must lie between 0 and the canaries")
        if not 0 <= self.correct <= self.guesses:
            raise Malformed("correct", "must lie between 0 and the guesses")


def flip(stream: Stream, canaries: int) -> NDArray[np.bool_]:
    """Fair coins, shape (canaries,): which canaries go into the data. Raises: OverflowError."""
    return (stream.words(canaries) >> np.uint64(63)).astype(np.bool_)


def tally(scores: NDArray[np.float64], included: NDArray[np.bool_], guesses: int, *, only_in: bool = False) -> Tally:
    """Say "in" of the half of the guesses with the highest scores, "out" of the half with the lowest, and count.

    Args:
        scores: shape (canaries,); the higher, the more a canary looks as if it had been trained on.
        included: shape (canaries,); the coins.
        guesses: how many of both together; chosen without the coins.
        only_in: whether all guesses are "in". Where records are drawn rarely, one that was drawn is louder than one
            that was not is silent: the absent look like many that were never drawn.

    Raises:
        Malformed: for scores that are not finite, shapes that differ, or more guesses than canaries.
    """
    if scores.ndim != 1 or scores.shape != included.shape:
        raise Malformed("scores", "must be one number for each coin")
    if not np.isfinite(scores).all():
        raise Malformed("scores", "must be finite")
    order = np.argsort(scores, kind="stable")
    lowest = 0 if only_in else guesses // 2
    low, high = order[:lowest], order[len(order) - (guesses - lowest) :]
    return Tally(len(scores), guesses, int((~included[low]).sum() + included[high].sum()))


def chance(seen: Tally, epsilon: float, delta: float) -> float:
    """At most this likely is it that an (ε, δ)-private run gives an auditor as much as was seen, or more."""
    trials, right = seen.guesses, seen.correct
    counts = np.arange(trials + 1, dtype=np.float64)
    # Logarithms of the chances of 0, 1, ... trials; right is 1 / (1 + e^-ε), wrong 1 / (1 + e^ε).
    ways = np.concatenate(([0.0], np.cumsum(np.log(counts[:0:-1] / counts[1:]))))
    likely = np.exp(ways - counts * math.log1p(math.exp(-epsilon)) - (trials - counts) * math.log1p(math.exp(epsilon)))
    below = np.cumsum(likely[:right][::-1])
    steepest = float((below / np.arange(1, right + 1)).max()) if right else 0.0
    return min(1.0, float(likely[right:].sum()) + 2 * seen.canaries * delta * steepest)


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
    most = float(doubt) * (1 - _CAUTION)
    place = 0
    while place <= _PLACES * _EPSILON_MAX and chance(seen, place / _PLACES, float(delta)) * (1 + _CAUTION) < most:
        place += 1
    return Fraction(max(0, place - 1), _PLACES)
