"""From noisy whole numbers to figures: post-processing, which costs nothing."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ledger.mechanisms import statistics as s

Noisy = NDArray[np.int64]
Figures = dict[str, NDArray[Any]]
VARIANCE_MIN: Final = 2.0**-20
"""Of a column scaled to [-1, 1]: noise can make a variance negative, and records are divided by its root."""


def figures(statistic: s.Statistic, noisy: Noisy) -> Figures:
    """The results of a statistic, by name; computed from its noisy numbers alone.

    A count is the array of the statistic's name. Moments are ``NAME.count``, ``NAME.mean``, ``NAME.variance`` and
    ``NAME.deviation``, the last three one number a column; a ROC curve is ``NAME.counts``, of shape (2, buckets), and
    ``NAME.auc``.
    """
    name = statistic.name
    match statistic:
        case s.ClippedSum():
            sizes = [float(max(abs(one.lower), abs(one.upper))) for one in statistic.columns]
            return {name: noisy / s.GRID * np.array(sizes)}
        case s.Moments():
            return {f"{name}.{what}": found for what, found in _moments(statistic, noisy).items()}
        case s.Quantile():
            return {name: np.array([float(statistic.candidates[int(noisy[0])])])}
        case s.ConfusionMatrix():
            return {name: noisy.reshape(statistic.classes, statistic.classes)}
        case s.RocCurve():
            counts = noisy.reshape(2, statistic.buckets)
            return {f"{name}.auc": np.array([area(counts)]), f"{name}.counts": counts}
        case _:
            return {name: noisy}


def _moments(statistic: s.Moments, noisy: Noisy) -> Figures:
    count = max(float(noisy[0]) / s.GRID, 1.0)
    middles = np.array([float((one.lower + one.upper) / 2) for one in statistic.columns])
    halves = np.array([float((one.upper - one.lower) / 2) for one in statistic.columns])
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

    Two in one bucket count as a half. Counts below 0 count as 0; without a record of either class it is a half.
    """
    negatives, positives = np.maximum(counts, 0).astype(np.float64)
    pairs = negatives.sum() * positives.sum()
    if not pairs:
        return 0.5
    below = np.cumsum(negatives) - negatives / 2
    return float((below * positives).sum() / pairs)
