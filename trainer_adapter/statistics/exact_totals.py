"""The exact whole numbers of a statistic, before noise: private, and never reported.

How far one record moves them is what :func:`ledger.mechanisms.statistic_prices.sensitivity` bounds.
Records have finite numbers and declared categories (:mod:`trainer_adapter.run.declared_records`); a model's outputs may
be no numbers. Those end nothing, since that would show one record without noise: such a value is in no cell, and counts
as zero in a sum, as the middle of its bounds in moments, and as the greatest squared error.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ledger.mechanisms import statistics as s
from ledger.mechanisms.statistic_prices import pair_weight
from ledger.wire.malformed import Malformed

Values = NDArray[np.float64]
Totals = NDArray[np.int64]
RECORDS_MAX: Final = 1 << 40
"""Records of which sums of at most ``GRID`` each stay far below 2^63."""


class Columns(Protocol):
    """Numbers by column; see :class:`trainer_adapter.statistics.columns.RecordColumns`."""

    @property
    def records(self) -> int:
        """How many there are."""

    def values(self, column: str) -> Values:
        """The numbers of one column, shape (records,). Raises: Malformed."""


def exact_totals(statistic: s.Statistic, columns: Columns) -> Totals:  # noqa: PLR0911 - one a kind
    """The totals of all records, int64, flat: a statistic's cells in row order, or its sums, or its scores.

    Raises:
        Malformed: for a column that the records do not have, or more records than can be added up.
    """
    if columns.records > RECORDS_MAX:
        raise Malformed("records", f"are more than {RECORDS_MAX}: their sum could leave 64 bits")
    match statistic:
        case s.Count():
            return np.array([columns.records], dtype=np.int64)
        case s.ClippedSum():
            return np.array(
                [_clipped_sum(columns.values(column.column), column) for column in statistic.columns], np.int64
            )
        case s.Moments():
            numbers = [columns.records * s.GRID]
            for column in statistic.columns:
                numbers += _moments(columns.values(column.column), column)
            return np.array(numbers, np.int64)
        case s.SquaredError():
            return _squared_error(columns.values(statistic.truth), columns.values(statistic.predicted), statistic)
        case s.AreaUnderCurve():
            return _pairs(columns.values(statistic.truth), columns.values(statistic.score), statistic)
        case s.Quantile():
            return _scores(columns.values(statistic.column), statistic)
        case _:
            cells, count = _cells(statistic, columns)
            return np.bincount(cells, minlength=count).astype(np.int64)


def _cells(statistic: s.Statistic, columns: Columns) -> tuple[Totals, int]:
    """The cell of each record that is in one, and how many cells there are."""
    match statistic:
        case s.Histogram():
            values = columns.values(statistic.column)
            edges = np.array([float(edge) for edge in statistic.edges])
            return np.searchsorted(edges, values[~np.isnan(values)], side="right"), len(edges) + 1
        case s.Categories():
            return _positions(columns.values(statistic.column), statistic.values), len(statistic.values)
        case s.ConfusionMatrix():
            truth, predicted = columns.values(statistic.truth), columns.values(statistic.predicted)
            known = _is_class(truth, statistic.classes) & _is_class(predicted, statistic.classes)
            cells = truth[known].astype(np.int64) * statistic.classes + predicted[known].astype(np.int64)
            return cells, statistic.classes**2
        case s.RocCurve():
            truth, score = columns.values(statistic.truth), columns.values(statistic.score)
            known = _is_class(truth, 2) & ~np.isnan(score)
            bucket = np.floor(np.clip(score[known], 0.0, 1.0) * statistic.buckets).astype(np.int64)
            within = np.minimum(bucket, statistic.buckets - 1)
            return truth[known].astype(np.int64) * statistic.buckets + within, 2 * statistic.buckets
        case _:
            raise AssertionError(f"{type(statistic).__name__} is a statistic without totals")


def _is_class(values: Values, classes: int) -> Any:  # noqa: ANN401 - an array of truth values
    return (values >= 0) & (values < classes) & (values == np.floor(values))


def _positions(values: Values, declared: tuple[int, ...]) -> Totals:
    known = np.array(declared, dtype=np.float64)
    order = np.argsort(known)
    near = np.minimum(np.searchsorted(known[order], values), len(known) - 1)
    cells: Totals = order[near][known[order][near] == values]
    return cells


def _clipped_sum(values: Values, column: s.ClippedColumn) -> int:
    lower, upper = float(column.lower), float(column.upper)
    return _on_grid(np.clip(values, lower, upper) / max(abs(lower), abs(upper)))


def _moments(values: Values, column: s.ClippedColumn) -> list[int]:
    lower, upper = float(column.lower), float(column.upper)
    middle, half = (lower + upper) / 2, (upper - lower) / 2
    centred = (np.clip(values, lower, upper) - middle) / half if half else np.zeros_like(values)
    return [_on_grid(centred), _on_grid(centred * centred)]


def _squared_error(truth: Values, predicted: Values, statistic: s.SquaredError) -> Totals:
    with np.errstate(invalid="ignore", over="ignore"):
        shares = np.abs(truth - predicted) / float(statistic.bound)
    # What is no number has the greatest error: a model that gives none must not be the best one.
    bounded = np.minimum(np.nan_to_num(shares, nan=1.0), 1.0)
    return np.array([_on_grid(bounded * bounded)], np.int64)


def _on_grid(values: Values) -> int:
    """The sum of numbers of at most 1, each rounded to the grid and then held to it, whatever it was."""
    whole = np.clip(np.rint(np.nan_to_num(values, nan=0.0) * s.GRID), -s.GRID, s.GRID).astype(np.int64)
    return int(whole.sum())


def _scores(values: Values, statistic: s.Quantile) -> Totals:
    known = np.sort(values[~np.isnan(values)])
    candidates = np.array([float(candidate) for candidate in statistic.candidates])
    below = np.searchsorted(known, candidates, side="left").astype(np.int64)
    above = len(known) - np.searchsorted(known, candidates, side="right").astype(np.int64)
    level = statistic.level
    scores: Totals = np.abs((level.denominator - level.numerator) * below - level.numerator * above)
    return scores


def _pairs(truth: Values, score: Values, statistic: s.AreaUnderCurve) -> Totals:
    """The weighted numbers of both classes, and how many more pairs class 1 wins than it loses."""
    known = ~np.isnan(score)
    negatives = np.sort(score[known & (truth == 0)][: statistic.negatives_max])
    positives = score[known & (truth == 1)][: statistic.positives_max]
    won = int(np.searchsorted(negatives, positives, side="left").sum())
    lost = len(negatives) * len(positives) - int(np.searchsorted(negatives, positives, side="right").sum())
    weight = pair_weight(statistic)
    return np.array([len(negatives) * weight, len(positives) * weight, won - lost], np.int64)


def present_categories(values: Values) -> tuple[Totals, Totals]:
    """The categories that some record has, rising, and how many records each. Private: which there are, too."""
    whole = values[(np.abs(values) <= s.CATEGORY_MAX) & (values == np.floor(values))]
    found, counts = np.unique(whole.astype(np.int64), return_counts=True)
    return found, counts.astype(np.int64)
