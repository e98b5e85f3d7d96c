"""The area under the curve from all pairs: how far a record moves it, and whether its stated error holds."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.mechanisms.statistic_prices import noise_of, sensitivity
from ledger.mechanisms.statistics import AreaUnderCurve
from tests.trainer_adapter.statistics.asked_statistics import ADDED, Rows
from trainer_adapter.statistics.answers import figures, pairs_error
from trainer_adapter.statistics.exact_totals import exact_totals

SCORES = st.sampled_from([0.0, 0.25, 0.5, 1.0, math.nan, math.inf])
ROW = st.tuples(SCORES, st.just(0.0), st.sampled_from([0.0, 0.0, 1.0, 1.0, 2.0, math.nan]))
ROWS = st.lists(ROW, max_size=9)


def asked(negatives: int, positives: int, epsilon: Fraction = Fraction(1)) -> AreaUnderCurve:
    """Of the first column's scores."""
    return AreaUnderCurve(
        name="roc",
        epsilon=epsilon,
        negatives_max=negatives,
        positives_max=positives,
        score="inputs[0]",
        truth="targets",
    )


def _pairs(rows: list[tuple[float, float, float]], statistic: AreaUnderCurve) -> tuple[int, int, int]:
    """Counts and won minus lost pairs, pair by pair."""
    known = [row for row in rows if not math.isnan(row[0])]
    negatives = [row[0] for row in known if row[2] == 0][: statistic.negatives_max]
    positives = [row[0] for row in known if row[2] == 1][: statistic.positives_max]
    won = sum((above > below) - (above < below) for above in positives for below in negatives)
    return len(negatives), len(positives), won


@given(ROWS, ROW, st.integers(0, 9), st.integers(1, 3), st.integers(1, 3))
def test_a_record_moves_the_totals_at_most_as_the_table_says(
    rows: list[tuple[float, float, float]],
    more: tuple[float, float, float],
    place: int,
    negatives: int,
    positives: int,
) -> None:
    """Wherever it stands, also where its class is full and it takes another's place; totals are what pairs give."""
    statistic = asked(negatives, positives)
    weight, bound = max(negatives, positives), sensitivity(statistic)
    with_it = [*rows[:place], more, *rows[place:]]
    before, after = (exact_totals(statistic, Rows(one)) for one in (rows, with_it))
    counts = _pairs(with_it, statistic)
    assert after.tolist() == [counts[0] * weight, counts[1] * weight, counts[2]]
    change = [abs(int(one)) for one in after - before]
    assert sum(change) <= bound.l1
    assert sum(one * one for one in change) <= bound.l2_square


def test_both_ways_of_moving_reach_the_table() -> None:
    """One more record beside a full class of the other; and one that takes the place of the last."""
    statistic = asked(3, 3)
    full = [(0.5, 0.0, 0.0)] * 3
    added = exact_totals(statistic, Rows([*full, (1.0, 0.0, 1.0)])) - exact_totals(statistic, Rows(full))
    assert np.abs(added).sum() == sensitivity(statistic).l1 == 6
    both = [*full, *[(0.7, 0.0, 1.0)] * 3]
    moved = exact_totals(statistic, Rows([(0.9, 0.0, 0.0), *both])) - exact_totals(statistic, Rows(both))
    assert (np.abs(moved).sum(), int((moved**2).sum())) == (6, sensitivity(statistic).l2_square)


@pytest.mark.parametrize(
    ("sizes", "shift", "epsilon"),
    [((436, 200), 0.3, Fraction(3, 10)), ((436, 200), 0.05, Fraction(1, 2)), ((90, 80), 0.5, Fraction(1))],
)
def test_a_stated_error_holds(sizes: tuple[int, int], shift: float, epsilon: Fraction) -> None:
    """In at least 95 of 100 draws of discrete Laplace noise, against the area over all pairs; and it says something."""
    statistic = asked(sizes[0] + 20, sizes[1] + 20, epsilon)
    scale, drawn, inside, errors = noise_of(statistic, ADDED).laplace, np.random.default_rng(7), 0, []
    assert scale is not None
    rounds, ratio = 400, 1 - math.exp(-1 / float(scale))
    for _ in range(rounds):
        rows = [(drawn.normal(side * shift, 0.3), 0.0, float(side)) for side in (0, 1) for _ in range(sizes[side])]
        totals = exact_totals(statistic, Rows(rows))
        noisy = totals + drawn.geometric(ratio, 3) - drawn.geometric(ratio, 3)
        negatives, positives, won = _pairs(rows, statistic)
        truth = 0.5 + won / (2 * negatives * positives)
        error = pairs_error(statistic, noisy, 2 * float(scale) ** 2)
        errors.append(error)
        inside += abs(float(figures(statistic, noisy)["roc.auc"][0]) - truth) <= error
    assert inside >= 0.95 * rounds
    assert np.median(errors) < 0.15


def test_an_error_says_when_it_says_nothing() -> None:
    """Where one class may be noise alone, a half, and so is the area."""
    statistic = asked(100, 100)
    assert pairs_error(statistic, np.array([100 * 2, 100 * 90, 50]), 2 * 200.0**2) == 0.5
    assert figures(statistic, np.array([-100, 9_000, 50]))["roc.auc"][0] == 0.5
    assert pairs_error(statistic, np.array([100 * 100, 100 * 100, 10_000]), 2.0) < 0.001
