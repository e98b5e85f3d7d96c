"""An adversary asks an ensemble, each question chosen after the answers so far, and computes its exact worst δ.

The library of questions is of vote counts of two classes, as they are with and without one record. An adversary that
knows all other records chooses such counts freely. Every answer's law is exact, so the δ of the best adaptive choice is
a recursion over all outcomes: F_0(p, q) = max(0, p - e^ε·q), F_n(p, q) = max over questions of the sum over outcomes.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

from ledger.accounting.epsilon_report import report_epsilon
from ledger.mechanisms.ensembles import EnsemblePlan, Plurality
from ledger.mechanisms.plan_reader import parse_plan

DELTA = 1e-5
TEACHERS = 1_000
Law = NDArray[np.float64]
"""Shape (2, outcomes): the probabilities of each outcome with the record, and without it."""


def plan_of(questions: int, noise: str, relation: str = "REPLACE_SPECIAL", **more: object) -> EnsemblePlan:
    """An ensemble of two classes."""
    answer = {"classes": 2, "kind": "plurality", "noise": noise}
    chunks = "content" if relation == "REPLACE_ONE" else "position"
    about = {"chunks_by": chunks, "kind": "ensemble", "questions": questions, "teachers": TEACHERS, "v": 1}
    return EnsemblePlan.of(parse_plan({**about, "answer": answer, "relation": relation, **more}))


def argmax_law(first: int, second: int, noise: float) -> Law:
    """The probability that the first class wins, and the second: their difference has noise of σ·√2."""
    wins = ndtr((first - second) / (noise * math.sqrt(2)))
    return np.array([wins, 1 - wins])


def law_of(plan: EnsemblePlan, counts: tuple[int, int]) -> Law:
    """The law of one question's outcome: a class; or nothing, where it is screened out."""
    assert isinstance(plan.answer, Plurality)
    won = argmax_law(*counts, float(plan.answer.noise))
    if plan.screening is None:
        return won
    passes = ndtr((max(counts) - float(plan.screening.threshold)) / float(plan.screening.noise))
    return np.array([1 - passes, *(passes * won)])


def library(plan: EnsemblePlan, moved: int) -> list[tuple[Law, Law]]:
    """Laws of neighbouring counts, over margins from one side to the other, both ways."""
    found = []
    for low in range(0, TEACHERS - moved + 1, 4):
        counts, other = (TEACHERS - low, low), (TEACHERS - low - moved, low + moved)
        pair = law_of(plan, counts), law_of(plan, other)
        found += [pair, pair[::-1]]
    return found


def worst_delta(laws: list[tuple[Law, Law]], questions: int, epsilon: float) -> float:
    """The exact δ at ε of the best adaptive choice of so many questions."""
    pairs = np.array(laws)

    def best(p: Law, q: Law, left: int) -> Law:
        if left == 0:
            return np.maximum(0.0, p - math.exp(epsilon) * q)
        with_all = p[..., None, None] * pairs[:, 0], q[..., None, None] * pairs[:, 1]
        found: Law = best(*with_all, left - 1).sum(axis=-1).max(axis=-1)
        return found

    return float(best(np.ones(()), np.ones(()), questions))


def chosen(laws: list[tuple[Law, Law]], count: int) -> list[tuple[Law, Law]]:
    """So many questions from all over a library, whose every outcome can be seen."""
    seen = [pair for pair in laws if pair[0].min() > 1e-9]
    return seen[:: max(1, len(seen) // count)]


def epsilon_of(plan: EnsemblePlan) -> float:
    """What the ledger reports."""
    return float(report_epsilon(plan.whole, Fraction(1, 10**5), plan.relation).epsilon)


ONE: list[tuple[str, EnsemblePlan, int]] = [
    ("zeroed", plan_of(1, "40"), 1),
    ("moved", plan_of(1, "80", "REPLACE_ONE"), 2),
    ("little-noise", plan_of(1, "12"), 1),
    ("screened", plan_of(1, "500", screening={"answers": 1, "noise": "20", "threshold": "900"}), 1),
    ("screened-widely", plan_of(1, "20", screening={"answers": 1, "noise": "120", "threshold": "0"}), 1),
]


@pytest.mark.parametrize(("plan", "moved"), [(plan, moved) for _, plan, moved in ONE], ids=[name for name, *_ in ONE])
def test_one_question_reaches_nearly_all_of_delta(plan: EnsemblePlan, moved: int) -> None:
    """At least 0.9 of δ and at most 1.000: the margin of votes is the best test that a Gaussian has."""
    reached = worst_delta(library(plan, moved), 1, epsilon_of(plan)) / DELTA
    assert 0.9 <= reached <= 1.000


@pytest.mark.parametrize(
    ("questions", "screening", "least"),
    [
        (2, None, 0.4),
        (3, None, 0.1),
        (2, {"noise": "400", "threshold": "0"}, 0.1),
        (2, {"noise": "12", "threshold": "560"}, 0.01),
        (3, {"noise": "12", "threshold": "560"}, 0.001),
    ],
    ids=["two", "three", "two-screened-widely", "two-screened", "three-screened"],
)
def test_several_questions_never_exceed_delta(questions: int, screening: dict[str, Any] | None, least: float) -> None:
    """Each chosen by what was answered: an answer tells less than its noisy counts would, and never more than δ."""
    plan = plan_of(questions, "25")
    if screening is not None:
        plan = plan_of(questions, "25", screening={**screening, "answers": questions})
    laws = chosen(library(plan, 1), 150 if questions == 2 else 18)
    reached = worst_delta(laws, questions, epsilon_of(plan)) / DELTA
    assert least <= reached <= 1.000


def test_half_of_the_noise_is_seen() -> None:
    """The same adversary, against an ensemble that adds half of what is charged, passes δ many times over."""
    charged, ran = plan_of(1, "40"), plan_of(1, "20")
    assert worst_delta(library(ran, 1), 1, epsilon_of(charged)) > 5 * DELTA
    both = plan_of(1, "40", "REPLACE_ONE", chunks_by="position")
    assert worst_delta(library(both, 2), 1, epsilon_of(both)) > 5 * DELTA


def median_law(values: tuple[int, ...], places: int, epsilon: float) -> Law:
    """The probability of each place of a grid 0, 1, ... for teachers whose outputs lie between places."""
    ranks = np.array([sum(one < place for one in values) for place in range(places)])
    weights: Law = np.exp(-epsilon * np.abs(ranks - len(values) / 2) / 2)
    law: Law = weights / weights.sum()
    return law


def median_library(teachers: int, places: int, epsilon: float) -> list[tuple[Law, Law]]:
    """The laws of all small outputs, and of those with one of them moved."""
    return [
        (median_law(values, places, epsilon), median_law((moved, *values[1:]), places, epsilon))
        for values in product(range(-1, places), repeat=teachers)
        for moved in range(-1, places)
    ]


@pytest.mark.parametrize("teachers", [2, 3])
def test_a_median_keeps_its_range(teachers: int) -> None:
    """Of all outputs of few teachers, log-ratios of neighbours differ by at most ε, and nearly ε is reached."""
    ranges = [np.ptp(np.log(p / q)) for p, q in median_library(teachers, 4, 0.8)]
    assert 0.79 <= max(ranges) <= 0.8 + 1e-12


def test_several_medians_never_exceed_delta() -> None:
    """Three of them, each chosen by the answers so far; half of what is charged would be passed."""
    answer = {"epsilon": "0.8", "grid": ["0", "1", "2"], "kind": "median"}
    plan = EnsemblePlan.of(parse_plan({**plan_of(3, "1").to_json(), "answer": answer, "teachers": 3}))
    epsilon = epsilon_of(plan)
    laws = median_library(3, 3, 0.8)
    worst = {tuple(np.round(np.concatenate(pair), 9)): pair for pair in laws if not np.allclose(*pair)}
    pairs = list(worst.values())[:40]
    assert worst_delta(pairs, 3, epsilon) <= DELTA
    assert worst_delta(pairs, 3, epsilon / 4) > DELTA
