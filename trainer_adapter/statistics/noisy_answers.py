"""One charged answer: a statistic's exact totals, the noise that it is charged for, and figures of both together."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import numpy as np
import torch
from torch import Tensor

from ledger.mechanisms.statistic_prices import noise_of, threshold
from ledger.mechanisms.statistics import AreaUnderCurve, PrivateCategories, RocCurve, Statistic
from ledger.wire.malformed import Malformed
from trainer_adapter.statistics.answers import Figures, area_error, figures, pairs_error, released
from trainer_adapter.statistics.exact_totals import Columns, exact_totals, present_categories
from trainer_adapter.statistics.opendp_noise import draw

Answers = dict[str, Tensor]
REPORTED_MAX: Final = 8
"""Numbers of one answer that people are shown; the file has them all."""


def noisy_answer(statistic: Statistic, relation: str, columns: Columns, where: str = "statistics") -> Answers:
    """The figures of one statistic by name, with the noise that its price demands under the relation.

    Raises:
        Malformed: in words that quote no record.
    """
    try:
        answers = _answered(statistic, relation, columns)
    except (ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, Malformed):
            raise
        rule = f"failed ({type(error).__name__}); its message may quote a record"
        raise Malformed(f"{where}.{statistic.name}", rule) from None
    return {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in answers.items()}


def _answered(statistic: Statistic, relation: str, columns: Columns) -> Figures:
    if isinstance(statistic, PrivateCategories):
        categories, counts = present_categories(columns.values(statistic.column))
        # Noise for no category would be an empty draw, which the library refuses.
        noisy = draw(statistic, relation, counts) if len(counts) else counts
        return released(statistic, categories, noisy, threshold(statistic, relation))
    noisy = draw(statistic, relation, exact_totals(statistic, columns))
    answers = figures(statistic, noisy)
    if isinstance(statistic, RocCurve):
        error = area_error(answers[f"{statistic.name}.counts"], _variance(statistic, relation))
        answers[f"{statistic.name}.auc_error"] = np.array([error])
    if isinstance(statistic, AreaUnderCurve):
        error = pairs_error(statistic, noisy, _variance(statistic, relation))
        answers[f"{statistic.name}.auc_error"] = np.array([error])
    return answers


def shown(value: Tensor) -> str:
    """An answer's numbers for people."""
    numbers = [f"{float(number):.6g}" for number in value.flatten()[:REPORTED_MAX]]
    if not numbers:
        return "none"
    more = value.numel() - len(numbers)
    return ", ".join(numbers) + (f" and {more} more" if more else "")


def _variance(statistic: Statistic, relation: str) -> float:
    """Of the noise on each number, at most: discrete Laplace noise of scale b has at most 2b²."""
    noise = noise_of(statistic, relation)
    variance = noise.gaussian_square if noise.laplace is None else 2 * noise.laplace**2
    return float(variance or Fraction(0))
