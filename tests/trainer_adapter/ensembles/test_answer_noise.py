"""Answers: their laws, against formulas of their own; teachers that fail vote as if they were always the same."""

import math
from collections import Counter
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ledger.mechanisms.ensembles import EnsemblePlan, Median
from ledger.mechanisms.plan_reader import parse_plan
from ledger.mechanisms.statistics import Coordinate
from trainer_adapter.ensembles.answer_noise import Normals, fresh_normals, median_place, noisy_answer, votes_of

Outputs = NDArray[np.float64]
NAN, INF = math.nan, math.inf


def plan(answer: dict[str, Any], **more: object) -> EnsemblePlan:
    """An ensemble with this answer."""
    about = {"chunks_by": "position", "kind": "ensemble", "questions": 5, "relation": "REPLACE_SPECIAL", "v": 1}
    return EnsemblePlan.of(parse_plan({**about, "teachers": 4, "answer": answer, **more}))


def fixed(*numbers: float) -> Normals:
    """A generator that draws these, over and over."""
    return lambda count: np.resize(np.array(numbers), count)


def _values(requested: EnsemblePlan, outputs: Outputs, noise: float) -> list[float]:
    reported: Any = noisy_answer(requested, outputs, normals=fixed(noise))
    return [float(one) for one in reported["values"]]


def test_a_teacher_votes_for_its_greatest_score_or_the_fixed_class() -> None:
    """One that failed, is not a number in any place, or is infinite votes for class 0."""
    scores = np.array([[0, 1, 2], [5, 1, 2], [NAN, 9, 9], [1, INF, 0], [0, -INF, 7], [0, 1, 2]], dtype=float)
    assert votes_of(scores, 3).tolist() == [4, 0, 2]


def test_an_argmax_has_the_law_of_two_noisy_counts() -> None:
    """Of 4,000 answers as many say 1 as Φ(2/(σ√2)) says, within 5 deviations."""
    votes = np.array([[0.0, 1.0]] * 3 + [[1.0, 0.0]])
    requested = plan({"classes": 2, "kind": "plurality", "noise": "3"})
    ones = sum(noisy_answer(requested, votes)["class"] == 1 for _ in range(4_000))
    expected = 0.5 * math.erfc(-2 / (3 * math.sqrt(2)) / math.sqrt(2))
    assert abs(ones / 4_000 - expected) < 5 * math.sqrt(expected * (1 - expected) / 4_000)


def test_screening_looks_at_the_greatest_count() -> None:
    """3 votes and 2.5 of noise pass 5.5 and not 5.6; what is only screened is never answered."""
    votes = np.array([[0.0, 1.0]] * 3 + [[1.0, 0.0]])
    for threshold, passes in (("5.5", True), ("5.6", False)):
        screening = {"answers": 5, "noise": "2.5", "threshold": threshold}
        requested = plan({"classes": 2, "kind": "plurality", "noise": "1"}, screening=screening, teachers=10)
        found = noisy_answer(requested, votes, normals=fixed(1.0, 0.0, 0.0))
        assert found == ({"class": 1} if passes else {"screened": True})
        assert noisy_answer(requested, votes, may_answer=False, normals=fixed(1.0, 0.0, 0.0)) == {"screened": True}


def test_a_mean_is_of_clipped_outputs_and_no_number_is_the_middle() -> None:
    """Noise is a multiple of the diameter over k; one teacher moves the mean by at most that."""
    outputs = np.array([[9.0, -9.0], [NAN, 0.25], [0.5, INF], [-9.0, 1.0]])
    bounds = [{"lower": "-1", "upper": "1"}, {"lower": "0", "upper": "1"}]
    requested = plan({"kind": "mean", "noise": "2", "outputs": bounds})
    first, second = _values(requested, outputs, 0.0)
    assert (first, second) == pytest.approx(((1 + 0 + 0.5 - 1) / 4, (0 + 0.25 + 0.5 + 1) / 4), abs=2e-3)
    scale = 2 * math.sqrt(2**2 + 1) / 4
    moved, _ = _values(requested, outputs, 1.0)
    assert moved - first == pytest.approx(scale, rel=2e-3)
    # What leaves is a multiple of a power of two near a 2^-10th of the noise.
    assert (moved * 2**11).is_integer()


def test_a_mean_far_from_zero_is_not_rounded_before_its_noise() -> None:
    """A step between float64 near 10^12 is 125 times what one teacher moves the mean by, far more than the noise hides.

    Where the plain mean goes from one float64 to the next, one teacher changes few answers under the same noise.
    """
    lower, upper, teachers = Fraction(10**12) - Fraction(1, 1024), Fraction(10**12), 1_000
    bounds = [{"lower": "999999999999.9990234375", "upper": "1000000000000"}]
    requested = plan({"kind": "mean", "noise": "40", "outputs": bounds}, teachers=teachers)
    means = [float(lower + (upper - lower) * high / teachers) for high in range(teachers + 1)]
    jump = next(high for high in range(teachers) if means[high] != means[high + 1])
    outputs, neighbour = np.full((teachers, 1), float(lower)), np.full((teachers, 1), float(lower))
    outputs[:jump], neighbour[: jump + 1] = float(upper), float(upper)
    noises = np.linspace(-4, 4, 401)
    changed = sum(_values(requested, outputs, noise) != _values(requested, neighbour, noise) for noise in noises)
    assert changed < len(noises) / 20
    # The answers are those of the bounds: noise of half a deviation is 2·10^-5 away from them.
    assert abs(_values(requested, outputs, 0.5)[0] - means[jump]) < 2e-4


def test_a_median_has_exactly_the_law_of_the_exponential_mechanism() -> None:
    """By the exact enumeration of weights e^(-ε·|rank - k/2|/2); 20,000 draws lie within 5 deviations of each."""
    grid = tuple(Coordinate(one) for one in (0, 1, 2, 3))
    answer = Median(epsilon=Fraction(2), grid=grid)
    values = [Fraction(1, 2)] * 3 + [Fraction(5, 2)] * 2
    ranks = [0, 3, 3, 5]
    weights = [math.exp(-2 * abs(rank - 2.5) / 2) for rank in ranks]
    random = Random(5)  # noqa: S311 - a test that is the same each time
    drawn = Counter(median_place(answer, values, random.randrange) for _ in range(20_000))
    for place, weight in enumerate(weights):
        share = weight / sum(weights)
        assert abs(drawn[place] / 20_000 - share) < 5 * math.sqrt(share * (1 - share) / 20_000)
    requested = plan({"epsilon": "200", "grid": ["-0.5", "0.5", "1"], "kind": "median"})
    # Two that are no number count as the lowest: the middle is above it.
    reported = {noisy_answer(requested, np.array([[NAN], [9.0], [INF], [9.0]]))["value"] for _ in range(20)}
    assert reported == {"0.5", "1"}


def test_noise_is_fresh() -> None:
    """No two answers have the same, and it is of standard deviation 1."""
    drawn = np.array([fresh_normals(50) for _ in range(40)])
    assert len(np.unique(drawn)) == 2_000
    assert 0.9 < float(drawn.std()) < 1.1
