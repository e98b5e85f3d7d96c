"""Answers of an ensemble: k teachers on disjoint chunks of the records, and what one changed record costs an answer.

    {"answer": {"classes": 10, "kind": "plurality", "noise": "40"}, "chunks_by": "position", "kind": "ensemble",
     "questions": 286, "relation": "REPLACE_SPECIAL", "teachers": 250, "v": 1}

Each teacher is trained without privacy on its own chunk, so a record moves the outputs of its chunk's teacher and of no
other. Prices hold for every question and every data set: they depend on the plan alone. A bound that depends on the
votes would be smaller where teachers agree, but it is itself computed from the records, so reporting or charging it
would leak (Papernot et al. 2018, Appendix B): none is used.

A question is one step. With screening it is answered only if the greatest count is high enough: the first questions are
each charged a screening and an answer, up to the cap of answers, and the others a screening. After q questions at most
min(q, cap) were answered, so what is charged for q questions covers whichever of them these were (Gaussian mechanisms
chosen adaptively under a bound on Σμ²: Smith, Thakurta 2022, Theorem 1.1).
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Final, Literal, get_args

from msgspec import Meta

from ledger.mechanisms.mechanism import (
    BoundedRange,
    Composed,
    Epsilon,
    GaussianPrivate,
    Mechanism,
    Noise,
    Relation,
    SelfComposed,
)
from ledger.mechanisms.price_proofs import ADD_REMOVE, REPLACE
from ledger.mechanisms.run_plan import RECORD, USER, RunPlan
from ledger.mechanisms.statistics import Coordinate, Coordinates
from ledger.wire.field_types import between, constant, distinct, exact, rule, words
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record

TEACHERS_MIN: Final = 2
TEACHERS_MAX: Final = 5_000
QUESTIONS_MAX: Final = 1_000_000
CLASSES_MAX: Final = 4_096
OUTPUTS_MAX: Final = 256
"""Numbers in one answer that is a mean."""
GRID_MAX: Final = 1_024
"""Values among which a median is chosen."""
POSITION: Final = "position"
CONTENT: Final = "content"
USERS: Final = "user"
_PLACES: Final = 10**18
"""The denominator that a μ² is rounded up to, which a record writes exactly."""

Questions = Annotated[int, between(1, QUESTIONS_MAX)]


class Answer(Record, frozen=True, kw_only=True, tag_field="kind"):
    """How the outputs of all teachers become one answer."""

    @property
    def kind(self) -> str:
        """Its name in a plan."""
        return str(self.__struct_config__.tag)


class Plurality(Answer, frozen=True, tag="plurality"):
    """The class with the most votes after Gaussian noise of ``noise`` votes is added to each count."""

    classes: Annotated[int, between(2, CLASSES_MAX)]
    noise: Noise


class Interval(Record, frozen=True):
    """The public bounds that one number of each teacher's output is clipped to."""

    lower: Coordinate
    upper: Coordinate

    def __post_init__(self) -> None:
        """Raises: Malformed."""
        super().__post_init__()
        if self.lower >= self.upper:
            raise Malformed("upper", "must be greater than lower")


class ClippedMean(Answer, frozen=True, tag="mean"):
    """The mean of the teachers' clipped outputs with Gaussian noise.

    Attributes:
        noise: standard deviation over how far one teacher moves the mean: the diameter of the bounds over k.
        outputs: the bounds of each number of an output.
    """

    noise: Noise
    outputs: Annotated[tuple[Interval, ...], Meta(min_length=1, max_length=OUTPUTS_MAX)]


class Median(Answer, frozen=True, tag="median"):
    """One of the values of a grid, by the exponential mechanism: a value's score is -|rank - k/2|."""

    epsilon: Epsilon
    grid: Annotated[Coordinates, distinct(GRID_MAX, 2)]

    def __post_init__(self) -> None:
        """Raises: Malformed."""
        super().__post_init__()
        if any(left >= right for left, right in pairwise(self.grid)):
            raise Malformed("grid", "must rise")


_ALL = Plurality | ClippedMean | Median
if TYPE_CHECKING:
    AnyAnswer = Answer
else:
    AnyAnswer = Annotated[_ALL, rule("is no answer that an ensemble gives: must be 'plurality', 'mean' or 'median'")]
ANSWERS: Final[tuple[type[Answer], ...]] = get_args(_ALL)


class Screening(Record, frozen=True):
    """Which questions are answered: those whose greatest count, with Gaussian noise, reaches the threshold.

    Attributes:
        answers: the most that are given; as many of the first questions are charged as answered.
        noise: standard deviation, in votes.
        threshold: in votes.
    """

    answers: Questions
    noise: Noise
    threshold: Annotated[Fraction, exact(Fraction(0), Fraction(TEACHERS_MAX))]


class EnsembleTerms(Record, frozen=True):
    """The terms of an ensemble: its answers, and how its records are divided.

    Attributes:
        relation: under which the price holds; a partition with another relation accepts no such charge.
        chunks_by: what a keyed hash of chooses a record's chunk: its ``position`` in its partition, its ``content``, or
            its ``user``, all of whose records are then in one chunk.
        teachers: how many chunks there are, and models.
        answer: how the teachers' outputs become one answer.
        questions: the most that are answered or screened; each is one step.
        screening: which of them are answered; all of them if it is None.
    """

    relation: Relation
    chunks_by: Annotated[str, words(POSITION, CONTENT, USERS)]
    teachers: Annotated[int, between(TEACHERS_MIN, TEACHERS_MAX)]
    answer: AnyAnswer
    questions: Questions
    screening: Screening | None = None

    def __post_init__(self) -> None:
        """Check its fields against each other. Raises: Malformed."""
        super().__post_init__()
        if self.chunks_by == POSITION and self.relation == ADD_REMOVE:
            rule_text = "must be 'content' or 'user' here: one record more or less would move all that come after it"
            raise Malformed("chunks_by", rule_text)
        if self.screening is None:
            return
        if not isinstance(self.answer, Plurality):
            raise Malformed("screening", "is for votes: leave it out")
        if self.screening.answers > self.questions:
            raise Malformed("screening.answers", "must be at most the questions, each of which gets one answer at most")


def chunks_moved(terms: EnsembleTerms) -> int:
    """How many chunks one changed unit is in: what it adds, removes or zeroes out is in one chunk.

    A record that is replaced keeps its position, and so its chunk. By content, or by user, the old one may be in one
    chunk and the new one in another: then two teachers change.
    """
    return 2 if terms.relation == REPLACE and terms.chunks_by != POSITION else 1


def mu_square(terms: EnsembleTerms, answer: Answer | Screening) -> Fraction:
    """μ² of one noisy answer or screening for one changed unit, exactly; c teachers change (:func:`chunks_moved`).

    - Votes: a teacher that changes its vote takes 1 from one count and adds 1 to another, so counts move by at most
      c·√2 in L2: c teachers may all leave one class for one other. With two classes that is met, since the argmax
      depends on the difference of two counts, which moves by 2c under noise of σ·√2.
    - Screening: the greatest count moves by at most c, as each single count does.
    - A mean of k outputs in a box of diameter D: by at most c·D/k. The noise is so many times D/k.
    """
    moved = chunks_moved(terms) ** 2
    match answer:
        case Plurality(noise=noise):
            return 2 * moved / noise**2
        case ClippedMean(noise=noise) | Screening(noise=noise):
            return moved / noise**2
        case _:
            raise AssertionError(f"{type(answer).__name__} has no Gaussian noise")


def ensemble_mechanism(terms: EnsembleTerms) -> Mechanism:
    """The mechanism that all questions of an ensemble are charged as, one step for each question.

    A median is chosen by the exponential mechanism: one teacher moves a value's rank, and so its score u, by at most 1,
    and weights e^(εu/2) have ε-bounded range (Durfee, Rogers 2019, Section 3).
    """
    if isinstance(terms.answer, Median):
        each: Mechanism = BoundedRange(terms.answer.epsilon * chunks_moved(terms), terms.relation)
        return _times(terms.questions, each)
    answered = mu_square(terms, terms.answer)
    if terms.screening is None:
        return _times(terms.questions, _gaussian(answered, terms))
    screened = mu_square(terms, terms.screening)
    first, rest = terms.screening.answers, terms.questions - terms.screening.answers
    both = _times(first, _gaussian(answered + screened, terms))
    return Composed((both, _times(rest, _gaussian(screened, terms)))) if rest else both


def _gaussian(square: Fraction, terms: EnsembleTerms) -> Mechanism:
    return GaussianPrivate(Fraction(math.ceil(square * _PLACES), _PLACES), terms.relation)


def _times(count: int, each: Mechanism) -> Mechanism:
    return each if count == 1 else SelfComposed(count, each)


class EnsemblePlan(EnsembleTerms, RunPlan, frozen=True, dict=True, tag_field="kind", tag="ensemble"):
    """A run that answers questions from teachers on disjoint chunks."""

    v: Literal[1] = constant(1)

    __hash__ = RunPlan.__hash__

    @cached_property
    def whole(self) -> Mechanism:
        """All questions, at their caps."""
        return ensemble_mechanism(self)

    @property
    def steps(self) -> int:
        """How many questions there are."""
        return self.questions

    @property
    def unit(self) -> str:
        """The unit that lies wholly in one chunk."""
        return USER if self.chunks_by == USERS else RECORD
