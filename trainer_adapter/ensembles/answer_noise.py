"""One noisy answer from the outputs of all teachers: the only place where votes become something that may leave.

Gaussian noise is ChaCha20's by Box and Muller, under a key that is drawn for this one answer, after its lease was
granted. An argmax, and whether a sum passes a threshold, show none of a number's low bits; a mean is added to its noise
exactly and rounded to a 2^-10th of its noise, so that its low bits are not those of a rounded sum (Mironov 2012).
The exponential mechanism is sampled exactly, with integers alone.

An output that is no finite number counts as a fixed one: class 0, the middle of the bounds, the lowest value of a grid.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ledger.accounting.rounding import float_up
from ledger.mechanisms.ensembles import Answer, ClippedMean, EnsembleTerms, Median, Plurality
from ledger.wire import canonical_json as c
from ledger.wire.field_types import write_custom
from trainer_adapter.dpsgd.csprng import CsprngRandomness

FIXED_CLASS: Final = 0
GRID: Final = 1 << 20
"""A clipped output is rounded to so many parts of its interval, so that their sum is of integers."""
ROUNDED: Final = 10
"""A mean is rounded to this negative power of two of its noise's scale."""
Outputs = NDArray[np.float64]
Normals = Callable[[int], Outputs]
"""So many independent standard normals."""


def fresh_normals(count: int) -> Outputs:
    """From the room's generator, under a key of their own."""
    return CsprngRandomness.fresh().stream("noise", 1).normals((count,))


def noisy_answer(
    terms: EnsembleTerms, outputs: Outputs, *, may_answer: bool = True, normals: Normals = fresh_normals
) -> c.Object:
    """The answer to one question, as JSON that may leave.

    Args:
        outputs: of each teacher, shape (teachers, numbers); a teacher that failed has NaN.
        may_answer: whether the cap of answers leaves room; if not, the question is screened alone.

    Returns:
        ``{"class": 3}``, ``{"values": ["0.25"]}`` or ``{"value": "1/2"}``; ``{"screened": True}`` of one that was
        screened out, or only screened.
    """
    match terms.answer:
        case Plurality(classes=classes):
            return _voted(terms, votes_of(outputs, classes), may_answer=may_answer, normals=normals)
        case ClippedMean():
            return {"values": [*_mean(terms.answer, outputs, normals)]}
        case Median():
            return {"value": _median(terms.answer, outputs)}
        case _:
            raise AssertionError(f"{type(terms.answer).__name__} is an answer without a rule")


def votes_of(outputs: Outputs, classes: int) -> NDArray[np.int64]:
    """The votes for each class: a teacher's is its greatest score, or the fixed class if a score is not finite."""
    sane = np.isfinite(outputs).all(axis=1)
    votes = np.where(sane, np.argmax(np.where(np.isfinite(outputs), outputs, 0.0), axis=1), FIXED_CLASS)
    return np.bincount(np.where(votes < classes, votes, FIXED_CLASS), minlength=classes)


def _voted(terms: EnsembleTerms, votes: NDArray[np.int64], *, may_answer: bool, normals: Normals) -> c.Object:
    assert isinstance(terms.answer, Plurality)
    noise = normals(len(votes) + 1)
    if (screen := terms.screening) is not None:
        seen = float(votes.max()) + float_up(screen.noise) * float(noise[0])
        if seen < float(screen.threshold) or not may_answer:
            return {"screened": True}
    return {"class": int(np.argmax(votes + float_up(terms.answer.noise) * noise[1:]))}


def _mean(answer: ClippedMean, outputs: Outputs, normals: Normals) -> list[c.Json]:
    teachers = len(outputs)
    lower = np.array([float(bounds.lower) for bounds in answer.outputs])
    wide = np.array([float_up(bounds.upper - bounds.lower) for bounds in answer.outputs])
    share = np.where(np.isfinite(outputs), (outputs - lower) / wide, 0.5)
    totals = np.rint(np.clip(share, 0.0, 1.0) * GRID).astype(np.int64).sum(axis=0)
    scale = _scale(answer, teachers)
    step = Fraction(2) ** (math.floor(math.log2(scale)) - ROUNDED)
    values = list[c.Json]()
    for bounds, total, normal in zip(answer.outputs, totals, normals(len(answer.outputs)), strict=True):
        # Exactly: what is rounded before the noise is added moves by more than the price is for.
        mean = (bounds.upper - bounds.lower) * Fraction(int(total), GRID * teachers)
        noisy = round((mean + Fraction(scale) * Fraction(float(normal))) / step) * step
        # The lower bound is public and may be far from zero, so it is added to what may leave, and not before.
        values.append(_decimal(bounds.lower + noisy))
    return values


def _scale(answer: ClippedMean, teachers: int) -> float:
    """The noise's standard deviation: so many times the diameter of the bounds over k, never below it."""
    square = sum(((bounds.upper - bounds.lower) ** 2 for bounds in answer.outputs), Fraction(0))
    diameter = math.nextafter(math.sqrt(float_up(square)), math.inf)
    return float_up(answer.noise * Fraction(diameter) / teachers)


def _decimal(value: Fraction) -> str:
    """The float64 nearest to a noisy number, in digits that read back as it."""
    return format(float(value), ".17g")


def _median(answer: Median, outputs: Outputs) -> str:
    values = outputs[:, 0]
    sane = np.where(np.isfinite(values), values, float(answer.grid[0]))
    place = median_place(answer, [Fraction(value) for value in sane.tolist()])
    return str(write_custom(answer.grid[place]))


def median_place(answer: Median, values: list[Fraction], below: Callable[[int], int] = secrets.randbelow) -> int:
    """The place of the chosen value: place i has probability ∝ e^(-ε·|rank_i - k/2|/2), exactly.

    A place is drawn evenly and kept with probability e^(-ε·(its distance - the least)/2), or drawn again.

    Args:
        below: an integer from 0 to below its argument, evenly.
    """
    ranks = [sum(value < edge for value in values) for edge in answer.grid]
    # Twice the distance from the middle, which is a whole number.
    doubled = [abs(2 * rank - len(values)) for rank in ranks]
    least = min(doubled)
    while True:
        place = below(len(doubled))
        if _bernoulli(answer.epsilon * (doubled[place] - least) / 4, below):
            return place


def _bernoulli(exponent: Fraction, below: Callable[[int], int]) -> bool:
    """True with probability e^-exponent (Canonne, Kamath, Steinke 2020, Algorithm 1)."""
    while exponent > 1:
        if not _kept_below_one(Fraction(1), below):
            return False
        exponent -= 1
    return _kept_below_one(exponent, below)


def _kept_below_one(exponent: Fraction, below: Callable[[int], int]) -> bool:
    """The same for at most 1: the first k at which Bernoulli(exponent/k) fails is odd with that probability."""
    k = 1
    while below(exponent.denominator * k) < exponent.numerator:
        k += 1
    return k % 2 == 1


def answer_names(answer: Answer) -> Any:  # noqa: ANN401 - a JSON Schema
    """What an answer of this kind looks like, for the consumer."""
    match answer:
        case Plurality(classes=classes):
            return {"class": f"0 to {classes - 1}"}
        case ClippedMean(outputs=outputs):
            return {"values": f"{len(outputs)} numbers"}
        case _:
            return {"value": "one of the grid"}
