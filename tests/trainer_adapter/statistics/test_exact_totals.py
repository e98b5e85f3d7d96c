"""Totals against a second count in plain Python, and what one record can do to them, whatever it holds."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.mechanisms import statistic_prices as prices
from ledger.mechanisms import statistics as s
from tests.trainer_adapter.statistics.asked_statistics import AGE, PAY, Rows, each, quantile
from trainer_adapter.statistics.exact_totals import exact_totals

NUMBERS = st.one_of(st.sampled_from([-1.0, 0.0, 1.0, 2.0, 3.0]), st.floats())
ROW = st.tuples(NUMBERS, NUMBERS, NUMBERS)
ROWS = st.lists(ROW, max_size=5)
LEVELS = st.fractions(0, 1, max_denominator=1_000).filter(lambda one: 0 < one < 1)
EVERY = each()


def _moved(statistic: s.Statistic, left: Rows, right: Rows) -> prices.Sensitivity:
    change = [int(one) for one in exact_totals(statistic, left) - exact_totals(statistic, right)]
    sizes = [abs(one) for one in change]
    return prices.Sensitivity(sum(sizes), sum(one * one for one in sizes), max(sizes))


@given(ROWS, st.lists(ROW, min_size=1, max_size=3), LEVELS)
def test_records_move_totals_at_most_as_the_table_says(
    rows: list[tuple[float, float, float]], more: list[tuple[float, float, float]], level: Fraction
) -> None:
    """K added ones k times as far, NaN and infinities among them; one that is replaced twice as far."""
    k = len(more)
    for statistic in (*EVERY, quantile(level)):
        bound = prices.sensitivity(statistic)
        added = _moved(statistic, Rows(rows), Rows([*more, *rows]))
        replaced = _moved(statistic, Rows([more[0], *rows]), Rows([more[-1], *rows]))
        if isinstance(statistic, s.Quantile):
            assert added.scores <= k * bound.scores
            assert replaced.scores <= 2 * bound.scores
            continue
        assert added.l1 <= k * bound.l1
        assert added.l2_square <= k * k * bound.l2_square
        assert replaced.l1 <= 2 * bound.l1
        assert replaced.l2_square <= 4 * bound.l2_square


@pytest.mark.parametrize("statistic", [*EVERY, quantile(Fraction(1, 4))], ids=lambda one: str(one.name))
def test_a_record_reaches_what_the_table_says(statistic: s.Statistic) -> None:
    """So that no price is of a distance that no record has."""
    # The first number's size is its bound, 3; the second's 5, and 2 is the lower one.
    rows = [(3.0, 5.0, 0.0), (1.0, 1.0, 1.0), (-1.0, 0.0, 0.0)]
    found = [_moved(statistic, Rows([]), Rows([row])) for row in rows]
    bound = prices.sensitivity(statistic)
    if isinstance(statistic, s.Quantile):
        assert max(one.scores for one in found) == bound.scores
    else:
        assert max(one.l1 for one in found) == bound.l1
        assert max(one.l2_square for one in found) == bound.l2_square


def test_what_is_no_number_or_was_not_declared_ends_nothing_here() -> None:
    """A model's outputs may be such, and an error would show one record; of records none comes here."""
    known = [(1.0, 3.0, 0.0), (2.0, 4.0, 2.0)]
    unknown = (math.nan, math.nan, 7.0)
    before = {one.name: exact_totals(one, Rows(known)) for one in EVERY}
    after = {one.name: exact_totals(one, Rows([*known, unknown])) for one in EVERY}
    assert after["count"].tolist() == [before["count"][0] + 1]
    for name in ("histogram", "categories", "sum", "matrix", "roc"):
        assert after[name].tolist() == before[name].tolist()
    # One more record, in the middle of both columns' bounds.
    assert (after["moments"] - before["moments"]).tolist() == [s.GRID, 0, 0, 0, 0]
    # And the greatest error: a model that gives no number is the worst.
    assert (after["error"] - before["error"]).tolist() == [s.GRID]


@given(ROWS)
def test_totals_are_what_a_second_count_finds(rows: list[tuple[float, float, float]]) -> None:
    """Record by record, in Python's own arithmetic."""
    for statistic in EVERY:
        expected = [0] * len(exact_totals(statistic, Rows([])))
        for row in rows:
            for place, by in _added(statistic, row):
                expected[place] += by
        assert exact_totals(statistic, Rows(rows)).tolist() == expected, statistic.name


def _added(statistic: s.Statistic, row: tuple[float, float, float]) -> list[tuple[int, int]]:  # noqa: PLR0911 - one a kind
    age, pay, target = row
    match statistic:
        case s.Count():
            return [(0, 1)]
        case s.Histogram():
            return [] if math.isnan(age) else [(sum(float(edge) <= age for edge in statistic.edges), 1)]
        case s.Categories():
            return [(statistic.values.index(int(target)), 1)] if target in statistic.values else []
        case s.ClippedSum():
            return [
                (place, _grid(_clip(x, one) / size)) for place, x, one, size in ((0, age, AGE, 3), (1, pay, PAY, 5))
            ]
        case s.Moments():
            scaled = [(_clip(age, AGE, 1.0) - 1) / 2, (_clip(pay, PAY, 3.5) - 3.5) / 1.5]
            numbers = [(2 * place + 1, _grid(z)) for place, z in enumerate(scaled)]
            return [(0, s.GRID), *numbers, *((2 * place + 2, _grid(z * z)) for place, z in enumerate(scaled))]
        case s.SquaredError():
            share = abs(target - pay) / 3
            return [(0, s.GRID if math.isnan(share) or share >= 1 else _grid(share * share))]
        case s.ConfusionMatrix():
            return [(int(target) * 2 + int(pay), 1)] if {target, pay} <= {0.0, 1.0} else []
        case _:
            if target not in {0.0, 1.0} or math.isnan(age):
                return []
            return [(int(target) * 4 + min(3, int(max(0.0, min(1.0, age)) * 4)), 1)]


def _clip(value: float, column: s.ClippedColumn, otherwise: float = 0.0) -> float:
    return otherwise if math.isnan(value) else max(float(column.lower), min(float(column.upper), value))


def _grid(value: float) -> int:
    return round(value * s.GRID)


@given(ROWS, LEVELS)
def test_the_best_score_is_at_the_quantile(rows: list[tuple[float, float, float]], level: Fraction) -> None:
    """The score of a candidate is how far the shares below and above it are from the level."""
    asked = quantile(level)
    values = [row[0] for row in rows if not math.isnan(row[0])]
    p, q = level.numerator, level.denominator
    expected = [abs((q - p) * sum(x < c for x in values) - p * sum(x > c for x in values)) for c in asked.candidates]
    assert exact_totals(asked, Rows(rows)).tolist() == expected


def test_bounds_that_a_float_cannot_tell_apart_move_nothing() -> None:
    """The only values that are no numbers after clipping; they count as the middle."""
    near = s.ClippedColumn("inputs[0]", s.Coordinate(10**12 - Fraction(1, 10**9)), s.Coordinate(10**12))
    asked = s.Moments(name="m", epsilon=Fraction(1), columns=(near,))
    assert exact_totals(asked, Rows([(1.0, 0.0, 0.0)] * 3)).tolist() == [3 * s.GRID, 0, 0]


def test_totals_are_whole_numbers_of_64_bits() -> None:
    """Whatever was asked, of no records too."""
    for statistic in (*EVERY, quantile(Fraction(1, 2))):
        assert exact_totals(statistic, Rows([])).dtype == np.int64
