"""From noisy whole numbers to figures: post-processing, which costs nothing."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ledger.mechanisms import statistics as s
from ledger.mechanisms.statistic_prices import pair_weight

Noisy = NDArray[np.int64]
Figures = dict[str, NDArray[Any]]
_DEVIATIONS: Final = 2.5
"""Standard deviations of a stated error: more than 95 % of noise is within, Laplace noise of one count too."""
VARIANCE_MIN: Final = 2.0**-20
"""Of a column scaled to [-1, 1]: noise can make a variance negative, and records are divided by its root."""


def figures(statistic: s.Statistic, noisy: Noisy) -> Figures:  # noqa: PLR0911 - one a kind
    """The results of a statistic, by name; computed from its noisy numbers alone.

    A count or a sum is the array of the statistic's name. Moments are ``NAME.count``, ``NAME.mean``, ``NAME.variance``
    and ``NAME.deviation``, the last three one number a column. A ROC curve is ``NAME.counts``, of shape (2, buckets),
    and ``NAME.auc``, with its stated error beside it as ``NAME.auc_error``; of all pairs there is no more than the two.
    """
    name = statistic.name
    match statistic:
        case s.ClippedSum():
            sizes = [float(max(abs(column.lower), abs(column.upper))) for column in statistic.columns]
            return {name: noisy / s.GRID * np.array(sizes)}
        case s.SquaredError():
            return {name: noisy / s.GRID * float(statistic.bound) ** 2}
        case s.Moments():
            return {f"{name}.{what}": found for what, found in _moments(statistic, noisy).items()}
        case s.Quantile():
            return {name: np.array([float(statistic.candidates[int(noisy[0])])])}
        case s.ConfusionMatrix():
            return {name: noisy.reshape(statistic.classes, statistic.classes)}
        case s.RocCurve():
            counts = noisy.reshape(2, statistic.buckets)
            return {f"{name}.auc": np.array([area(counts)]), f"{name}.counts": counts}
        case s.AreaUnderCurve():
            return {f"{name}.auc": np.array([_area_of_pairs(statistic, noisy)])}
        case _:
            return {name: noisy}


def released(statistic: s.PrivateCategories, categories: Noisy, noisy: Noisy, least: int) -> Figures:
    """The categories whose noisy counts are ``least`` or more, at most so many, rising; and these counts."""
    beyond = np.flatnonzero(noisy >= least)
    first = np.sort(beyond[np.lexsort((categories[beyond], -noisy[beyond]))][: statistic.categories_max])
    return {f"{statistic.name}.counts": noisy[first], f"{statistic.name}.values": categories[first]}


def _moments(statistic: s.Moments, noisy: Noisy) -> Figures:
    count = max(float(noisy[0]) / s.GRID, 1.0)
    middles = np.array([float((column.lower + column.upper) / 2) for column in statistic.columns])
    halves = np.array([float((column.upper - column.lower) / 2) for column in statistic.columns])
    first = np.clip(noisy[1::2] / s.GRID / count, -1.0, 1.0)
    second = np.clip(noisy[2::2] / s.GRID / count, 0.0, 1.0)
    spread = np.clip(second - first**2, VARIANCE_MIN, 1.0)
    return {
        "count": np.array([count]),
        "deviation": halves * np.sqrt(spread),
        "mean": middles + halves * first,
        "variance": halves**2 * spread,
    }


def area(counts: Noisy) -> float:
    """The area under the ROC curve of counts (2, buckets): how often a score of class 1 lies above one of class 0.

    Two in one bucket count as a half. Noisy counts may be below 0, and are added as they are: to cut them off would
    draw the area of many empty buckets towards a half. Without a record of either class it is a half.
    """
    negatives, positives = counts.astype(np.float64)
    if negatives.sum() <= 0 or positives.sum() <= 0:
        return 0.5
    below = np.cumsum(negatives) - negatives / 2
    return float(np.clip((below * positives).sum() / (negatives.sum() * positives.sum()), 0.0, 1.0))


def area_error(counts: Noisy, variance: float) -> float:
    """How far the area of noisy counts may be from that of the scores themselves, with a probability of 95 % or more.

    By the area's derivative in each count, and the products of two counts' noise; two scores in one bucket, which
    count as a half whichever is greater, are added in full. A bound that reaches a half says nothing.

    Args:
        counts: (2, buckets), with noise.
        variance: of the noise on each of them, at most.
    """
    negatives, positives = np.maximum(counts, 0).astype(np.float64)
    all_negative, all_positive = (float(row.sum()) for row in counts.astype(np.float64))
    if min(all_negative, all_positive) <= _DEVIATIONS * np.sqrt(variance * counts.shape[1]):
        return 0.5
    middle = area(counts)
    below = np.cumsum(negatives) - negatives / 2
    above = positives.sum() - np.cumsum(positives) + positives / 2
    slopes = ((below / all_negative - middle) / all_positive, (above / all_positive - middle) / all_negative)
    linear = variance * sum(float((slope**2).sum()) for slope in slopes)
    products = (variance * counts.shape[1] / (all_negative * all_positive)) ** 2
    ties = float((negatives * positives).sum()) / (2 * all_negative * all_positive)
    return float(min(0.5, _DEVIATIONS * np.sqrt(linear + products) + ties))


def _area_of_pairs(statistic: s.AreaUnderCurve, noisy: Noisy) -> float:
    negatives, positives, difference = _unweighted(statistic, noisy)
    if min(negatives, positives) <= 0:
        return 0.5
    return float(np.clip(0.5 + difference / (2 * negatives * positives), 0.0, 1.0))


def pairs_error(statistic: s.AreaUnderCurve, noisy: Noisy, variance: float) -> float:
    """How far the noisy area may be from that over all pairs that counted, with a probability of 95 % or more.

    By the area's derivative in the three numbers, with both counts taken as small as noise may have made them seem
    great. A bound of a half says nothing.

    Args:
        noisy: the weighted counts and the difference, with noise.
        variance: of the noise on each of them, at most.
    """
    negatives, positives, difference = _unweighted(statistic, noisy)
    deviation = np.sqrt(variance)
    of_count = deviation / pair_weight(statistic)
    least = [count - _DEVIATIONS * of_count for count in (negatives, positives)]
    if min(least) <= 0:
        return 0.5
    lean = min(0.5, abs(difference) / (2 * least[0] * least[1]))
    parts = [deviation / (2 * least[0] * least[1]), *(lean * of_count / count for count in least)]
    return float(min(0.5, _DEVIATIONS * np.sqrt(sum(part**2 for part in parts))))


def _unweighted(statistic: s.AreaUnderCurve, noisy: Noisy) -> tuple[float, float, float]:
    weight = pair_weight(statistic)
    return float(noisy[0]) / weight, float(noisy[1]) / weight, float(noisy[2])
