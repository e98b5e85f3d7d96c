"""Norms of tensors unit by unit, summed so that rounding stays within the precision's margin.

Squares are summed along rows in the work type and then in float64: off by at most (length of a row + 4)u, which the
precision's margin covers up to rows of 8,192 (longer ones are summed in float64), and by the least normal number for
each (Higham 2002, "Accuracy and Stability of Numerical Algorithms", section 3.1; any order of summation).
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from trainer_adapter.per_sample.rounding_margins import Precision

ROW_MAX: Final = 8_192


def squares(value: Tensor, precision: Precision) -> Tensor:
    """At least the squared norms of (units, ...), up to the margin's share; shape (units,), float64.

    Not finite wherever a value is not.
    """
    rows = value.reshape(len(value), *_rows(value.shape[1:])).to(precision.work)
    return _lengths(rows).square().sum(dim=1) + precision.tiny * value[0].numel()


def row_lengths(value: Tensor, precision: Precision) -> Tensor:
    """At least the norms of the last dimension's rows, up to the margin's share; float64. Not finite as in squares."""
    return (_lengths(value.to(precision.work)).square() + precision.tiny * value.shape[-1]).sqrt()


def finite(value: Tensor) -> Tensor:
    """Zero in the place of what is not finite: such a unit's weight is zero, and zero times NaN would be NaN."""
    return torch.nan_to_num(value, nan=0.0, posinf=0.0, neginf=0.0)


def _lengths(rows: Tensor) -> Tensor:
    wide = torch.float64 if rows.shape[-1] > ROW_MAX else None
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=-1, dtype=wide).to(torch.float64)
    return lengths


def _rows(shape: torch.Size) -> tuple[int, int]:
    """As few rows as there can be of at most ``ROW_MAX`` values: long ones are summed faster."""
    count, length = shape.numel(), 1
    for size in reversed(shape):
        if length * size > ROW_MAX and length > 1:
            break
        length *= size
    return count // length, length
