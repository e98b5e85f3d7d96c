"""Norms and weighted sums of per-example gradients; ghost norms among them.

Every kernel gives, for one parameter, a bound on the squared norm of each unit's gradient *as it will enter the sum*,
and the sum itself once weights are known. *Ghost norms* (Goodfellow 2015, arXiv 1510.01799; with positions, Li et al.
2022, "Large language models can be strong differentially private learners", arXiv 2110.05679, section 4) are norms
from inner products, without the per-example gradient in memory; with the weighted product that follows they are *ghost
clipping*. Which kernel is cheapest depends on shapes alone, and is measured on random tensors (``autotune``).

Rounding: a gradient that is multiplied out first and enters the sum as it is has no error but its record's own, and
its norm is that of the very tensor that is summed. So has an outer product of one position. Where the sum comes from a
product of its own, what enters it is bounded with proof: of outer products in ``outer_product_norms``; of a
convolution, whose positions' outer products add up group by group, as there: norms of sums over n positions are off by
gamma(n) S and what enters by gamma(n + 2) S, S the sum over positions of |gradient| |patch| (Higham 2002, "Accuracy
and Stability of Numerical Algorithms", section 3.5; any order of summation).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from torch import Tensor

from trainer_adapter.per_sample.gradient_factors import ConvGrad, EmbeddingGrad, OuterProductGrad, PerExampleGrad
from trainer_adapter.per_sample.outer_product_norms import (
    Summed,
    gathered,
    joined,
    norms_dense_product,
    norms_ghost,
    norms_next_token,
    weighted_rows,
)
from trainer_adapter.per_sample.rounding_margins import Precision
from trainer_adapter.per_sample.tensor_norms import finite, row_lengths, squares

Kernel: TypeAlias = Callable[[Sequence[PerExampleGrad], Precision], tuple[Tensor, Summed]]
"""From one parameter's factors to bounds on squared norms, (units,) in float64, and the sum to come."""


def _kept(whole: Tensor, precision: Precision) -> tuple[Tensor, Summed]:
    def summed(weights: Tensor) -> Tensor:
        return (weights @ finite(whole).reshape(len(whole), -1)).reshape(whole.shape[1:])

    return squares(whole, precision), summed


def norms_dense(factors: Sequence[PerExampleGrad], precision: Precision) -> tuple[Tensor, Summed]:
    """Multiply out, keep the per-example gradients in memory, and sum them."""
    if all(isinstance(factor, OuterProductGrad) for factor in factors):
        factors = [joined(factors).outer]
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
    left, right = factor.columns()
    lengths = row_lengths(left.movedim(2, -1), precision) * row_lengths(right, precision)
    size = lengths.sum(dim=2).square().sum(dim=1).sqrt() * (1 + 2.0**-10)
    off = precision.gamma(left.shape[-1]) + precision.gamma(left.shape[-1] + 2)
    norms = (squares(left @ right, precision).sqrt() + off * size).square()

    def summed(weights: Tensor) -> Tensor:
        inputs, grad = finite(factor.inputs), finite(factor.grad)
        return replace(factor, inputs=inputs, grad=grad).product(weights)

    return norms, summed


def norms_embedding_rows(factors: Sequence[PerExampleGrad], precision: Precision) -> tuple[Tensor, Summed]:
    """Of an embedding table: gather what falls into one row, and scatter the rows that were looked up."""
    once = gathered([factor for factor in factors if isinstance(factor, EmbeddingGrad)])
    return squares(once.right, precision), weighted_rows(once)


KERNELS: Final[dict[str, Kernel]] = {
    "dense": norms_dense,
    "unfolded_conv": norms_unfolded_conv,
    "grouped_conv": norms_grouped_conv,
    "conv_backward": norms_conv_backward,
    "dense_product": norms_dense_product,
    "ghost": norms_ghost,
    "embedding_rows": norms_embedding_rows,
    "next_token": norms_next_token,
}


def _patches(factors: Sequence[PerExampleGrad]) -> ConvGrad:
    (factor,) = factors
    assert isinstance(factor, ConvGrad)
    return factor
