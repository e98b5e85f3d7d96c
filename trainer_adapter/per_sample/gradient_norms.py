"""Norms and weighted sums of per-example gradients; ghost norms among them.

Every kernel gives, for one parameter, a bound on the squared norm of each unit's gradient *as it will enter the sum*,
and the sum itself once weights are known. *Ghost norms* (Goodfellow 2015, arXiv 1510.01799; with positions, Li et al.
2022, "Large language models can be strong differentially private learners", arXiv 2110.05679, section 4) are norms
from inner products, without the per-example gradient in memory; with the weighted product that follows they are *ghost
clipping*. Which kernel is cheapest depends on shapes alone, and is measured on random tensors (``autotune``).

Rounding (unit roundoff u, least normal t; Higham 2002, sections 3.1 and 4.2; any order of summation). For a
gradient in factors L (n, p) and R (n, d), M² = |L|²|R|², both in the Frobenius norm:
- the ghost norm is off by at most (p + d + 2n + 8)u · M² in the square, and the product (wL)'R that follows by
  (n + 2)u · wM in norm, so that the square of what enters the sum, over w², is at most the computed one
  + ``(p + d + 5n + 16)u · M²``. What underflows in an inner product of L's rows is multiplied by an inner
  product of R's: at most ``(p + d + n) n t (|L|² + |R|²)`` more;
- a gradient that is multiplied out first and enters the sum as it is has no such terms: its own rounding is
  that of the record's gradient, and the norm is the norm of the very tensor that is summed;
- with one position (n = 1) the square is |L|²|R|², nothing cancels, and nothing is added.
Squares are summed along rows in the work type and then in float64: off by at most (length of a row + 4)u, which
the precision's margin covers up to rows of 8,192 (longer ones are summed in float64), and by a t for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Final, TypeAlias

import torch
from torch import Tensor

from trainer_adapter.per_sample.gradient_factors import ConvGrad, EmbeddingGrad, OuterProductGrad, PerExampleGrad
from trainer_adapter.per_sample.rounding_margins import Precision

Summed: TypeAlias = Callable[[Tensor], Tensor]
"""From weights (units,), zero for units that do not count, to the weighted sum, in the shape of the parameter."""
Kernel: TypeAlias = Callable[[Sequence[PerExampleGrad], Precision], tuple[Tensor, Summed]]
"""From one parameter's factors to bounds on squared norms, (units,) in float64, and the sum to come."""

ROW_MAX: Final = 8_192


def squares(value: Tensor, precision: Precision) -> Tensor:
    """At least the squared norms of (units, ...), up to the margin's share; shape (units,), float64.

    Not finite wherever a value is not.
    """
    rows = value.reshape(len(value), *_rows(value.shape[1:]))
    wide = torch.float64 if rows.shape[2] > ROW_MAX else None
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=2, dtype=wide).to(torch.float64)
    return lengths.square().sum(dim=1) + precision.tiny * value[0].numel()


def _rows(shape: torch.Size) -> tuple[int, int]:
    """As few rows as there can be of at most ``ROW_MAX`` values: long ones are summed faster."""
    count, length = shape.numel(), 1
    for size in reversed(shape):
        if length * size > ROW_MAX and length > 1:
            break
        length *= size
    return count // length, length


def _finite(value: Tensor) -> Tensor:
    """Zero in the place of what is not finite: such a unit's weight is zero, and zero times NaN would be NaN."""
    return torch.nan_to_num(value, nan=0.0, posinf=0.0, neginf=0.0)


def _kept(whole: Tensor, precision: Precision) -> tuple[Tensor, Summed]:
    def summed(weights: Tensor) -> Tensor:
        return (weights @ _finite(whole).flatten(1)).reshape(whole.shape[1:])

    return squares(whole, precision), summed


def norms_dense(factors: Sequence[PerExampleGrad], precision: Precision) -> tuple[Tensor, Summed]:
    """Multiply out, keep the per-example gradients in memory, and sum them."""
    if all(isinstance(factor, OuterProductGrad) for factor in factors):
        factors = _joined(factors)
    first, *rest = (factor.whole() for factor in factors)
    for other in rest:
        first = first + other
    return _kept(first, precision)


def norms_unfolded_conv(factors: Sequence[PerExampleGrad], precision: Precision) -> tuple[Tensor, Summed]:
    """As ``norms_dense`` for one convolution, over its unfolded patches."""
    norms, summed = _kept(_patches(factors).whole_unfolded(), precision)
    return norms, lambda weights: summed(weights).movedim(-1, 1)


def norms_grouped_conv(factors: Sequence[PerExampleGrad], precision: Precision) -> tuple[Tensor, Summed]:
    """As ``norms_dense`` for one convolution, through a convolution with a group for every image."""
    return _kept(_patches(factors).whole_by_groups(), precision)


def norms_conv_backward(factors: Sequence[PerExampleGrad], precision: Precision) -> tuple[Tensor, Summed]:
    """Multiply out for the norm alone, and sum through the convolution's own backward."""
    factor = _patches(factors)
    channels_out, window = factor.kernel[0], prod(factor.kernel[2:])
    positions = factor.grad.shape[1] * factor.grad[0, 0, 0].numel()
    left, right = squares(factor.grad, precision), squares(factor.inputs, precision) * window
    norms = squares(factor.whole_unfolded(), precision) + _slack(
        left, right, positions, channels_out, prod(factor.kernel[1:]), precision
    )

    def summed(weights: Tensor) -> Tensor:
        inputs, grad = _finite(factor.inputs), _finite(factor.grad)
        return replace(factor, inputs=inputs, grad=grad).product(weights)

    return norms, summed


def norms_dense_product(factors: Sequence[PerExampleGrad], precision: Precision) -> tuple[Tensor, Summed]:
    """Multiply out for the norm alone, and sum through one weighted product."""
    joined = _joined(factors)
    (outer,) = joined
    assert isinstance(outer, OuterProductGrad)
    norms = squares(outer.whole(), precision) + _slack_of(joined, precision)
    return norms, _weighted(joined)


def norms_ghost(factors: Sequence[PerExampleGrad], precision: Precision) -> tuple[Tensor, Summed]:
    """Ghost norms, from inner products of positions; the sum by one weighted product (a table's: one scatter)."""
    joined = _joined(factors)
    if len(joined) == 1 and isinstance(joined[0], OuterProductGrad) and joined[0].left.shape[1] == 1:
        left, right = squares(joined[0].left, precision), squares(joined[0].right, precision)
        return left * right, _weighted(joined)
    norms = torch.stack([_inner(one, one) for one in joined]).sum(dim=0)
    if len(joined) == 2:
        norms = norms + 2 * _inner(*joined)
    return norms + _slack_of(joined, precision), _weighted(joined)


def norms_embedding_rows(factors: Sequence[PerExampleGrad], precision: Precision) -> tuple[Tensor, Summed]:
    """Of an embedding table: gather what falls into one row, and scatter the rows that were looked up."""
    (table,) = _joined(factors)
    assert isinstance(table, EmbeddingGrad)
    once = table.once()
    return squares(once.right, precision), _weighted([once])


KERNELS: Final[dict[str, Kernel]] = {
    "dense": norms_dense,
    "unfolded_conv": norms_unfolded_conv,
    "grouped_conv": norms_grouped_conv,
    "conv_backward": norms_conv_backward,
    "dense_product": norms_dense_product,
    "ghost": norms_ghost,
    "embedding_rows": norms_embedding_rows,
}


def _patches(factors: Sequence[PerExampleGrad]) -> ConvGrad:
    (factor,) = factors
    assert isinstance(factor, ConvGrad)
    return factor


def _joined(factors: Sequence[PerExampleGrad]) -> list[OuterProductGrad | EmbeddingGrad]:
    """At most one matrix and one table: positions of several uses of one parameter follow each other."""
    outer = [factor for factor in factors if isinstance(factor, OuterProductGrad)]
    rows = [factor for factor in factors if isinstance(factor, EmbeddingGrad)]
    joined: list[OuterProductGrad | EmbeddingGrad] = []
    if len(outer) == 1:
        joined += outer
    elif outer:
        joined.append(
            OuterProductGrad(torch.cat([one.left for one in outer], 1), torch.cat([one.right for one in outer], 1))
        )
    if len(rows) == 1:
        joined += rows
    elif rows:
        places, right = torch.cat([one.places for one in rows], 1), torch.cat([one.right for one in rows], 1)
        joined.append(EmbeddingGrad(places, right, rows[0].height))
    return joined


def _inner(one: OuterProductGrad | EmbeddingGrad, other: OuterProductGrad | EmbeddingGrad) -> Tensor:
    """The inner product of two gradients of one parameter, unit by unit; shape (units,), float64."""
    right = one.right @ other.right.transpose(1, 2)
    if isinstance(one, OuterProductGrad) and isinstance(other, OuterProductGrad):
        left = one.left @ other.left.transpose(1, 2)
    elif isinstance(one, OuterProductGrad) and isinstance(other, EmbeddingGrad):
        left = one.left.gather(2, other.places[:, None, :].expand(-1, one.left.shape[1], -1))
    else:
        assert isinstance(one, EmbeddingGrad)
        assert isinstance(other, EmbeddingGrad)
        left = (one.places[:, :, None] == other.places[:, None, :]).to(right.dtype)
    return (left * right).sum(dim=2).to(torch.float64).sum(dim=1)


def _slack_of(joined: Sequence[OuterProductGrad | EmbeddingGrad], precision: Precision) -> Tensor:
    left = torch.stack(
        [squares(one.left, precision) if isinstance(one, OuterProductGrad) else _ones(one.places) for one in joined]
    ).sum(dim=0)
    right = torch.stack([squares(one.right, precision) for one in joined]).sum(dim=0)
    positions = sum(one.right.shape[1] for one in joined)
    tall = max(one.left.shape[2] if isinstance(one, OuterProductGrad) else 1 for one in joined)
    return _slack(left, right, positions, tall, joined[0].right.shape[2], precision)


def _ones(places: Tensor) -> Tensor:
    return torch.full((len(places),), float(places.shape[1]), dtype=torch.float64, device=places.device)


def _slack(  # noqa: PLR0913, PLR0917 - the terms of one formula
    left: Tensor, right: Tensor, positions: int, tall: int, wide: int, precision: Precision
) -> Tensor:
    relative = (tall + wide + 5 * positions + 16) * precision.unit
    absolute = (tall + wide + positions) * positions * precision.tiny
    return relative * left * right + absolute * (left + right)


def _weighted(joined: Sequence[OuterProductGrad | EmbeddingGrad]) -> Summed:
    def summed(weights: Tensor) -> Tensor:
        total: Tensor | None = None
        for one in joined:
            if isinstance(one, OuterProductGrad):
                left, right = _finite(one.left * weights[:, None, None]), _finite(one.right)
                part = left.flatten(0, 1).T @ right.flatten(0, 1)
            else:
                right = _finite(one.right * weights[:, None, None])
                empty = right.new_zeros((one.height, right.shape[2]))
                part = empty.index_add(0, one.places.flatten(), right.flatten(0, 1))
            total = part if total is None else total + part
        assert total is not None
        return total

    return summed
