"""Norms of gradients that are sums of outer products, with a proven bound on all rounding up to the weighted sum.

One unit's gradient of a matrix (p, d) is G = sum over positions t of L_t (p) times R_t (d); what an embedding table
adds to the same matrix is a row each for distinct places (its positions are gathered first, so no place occurs twice
but with zeros). No per-example gradient is kept: its squared norm comes from inner products of positions (*ghost
norms*) or from the gradient multiplied out in pieces of rows, and the sum over units from one weighted product.

What enters that sum is not wG but what the product makes of it in floating point; the bound N returned here is on that.
Unit roundoff u, least normal t; gamma(k) = ku / (1 - ku) bounds the relative error of an inner product of length k in
any order of summation (Higham 2002, "Accuracy and Stability of Numerical Algorithms", equations 3.4 and 3.13).
Products are cut in blocks, whose results are added up: a sum over n in blocks of b is off by at most gamma(b + n/b)
(section 4.2), and by gamma(b) where blocks are added in float64.

- Let S be the sum over positions of |L_t| |R_t|, plus the Frobenius norm of a table's rows. S bounds the Frobenius
  norm of the sum of all terms' absolute values: by the triangle inequality, and since rows of distinct places are
  orthogonal. Each term passes at most D = b + n/b + 3 roundings on its way into the sum, so what enters it is within
  gamma(D) w S of wG (section 3.5). Positions count one by one: no product of one use's factors with another's occurs.
- Inner products of L's rows (of length p) are off by gamma(a) |L_s| |L_t| for blocks of a, those of R's likewise, and
  their products and sums over n * n pairs, in float64, by 2^-52 n * n. In all the squared norm is off by at most
  ((1 + gamma(a))^2 - 1 + 2^-52 n * n) S^2: each pair's error is bounded by |L_s| |R_s| |L_t| |R_t|. Against a table's
  rows the sum over places is bounded by Cauchy and Schwarz, the places being distinct.
- Multiplied out, G is within gamma(D) S of what is squared: |G|^2 is at most the square + 2 gamma(D) S |G'| +
  (gamma(D) S)^2.
- Where factors are bfloat16, all of this is of those very numbers, widened for inner products; on tensor cores, whose
  weighted factors are two numbers and so twice as many sums of blocks, ``Precision.of_products`` is gamma(D).
- What underflows in an inner product of L's rows, 2 p t at most, is multiplied by one of R's:
  at most ``(2 p + 2 d + n) n t (|L|^2 + |R|^2)`` in all.

A head with its cross-entropy (``next_token_loss``) is such a matrix, too: L is the softmax less the target's one, times
the gradient of a position's loss. It is made from saved R some columns at a time, once for the norm and once for the
sum, by the same operations on the same values; made twice, a column differs by a few roundings of its own size at most,
which the precision's margin covers. Inner products over V are added chunk by chunk in float64, each in blocks no longer
than those of V whole.

So N = sqrt(square + its error) + gamma(D) S. For positions that are orthogonal to each other S is sqrt(n) |G|;
:func:`typical_margin` says from shapes alone by how much N is then above |G|. Blocks are chosen by it: of 2^15 / n
values for inner products, and of 512 positions (128 on tensor cores).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Final, TypeAlias

import torch
from torch import Tensor

from trainer_adapter.gpu_kernels.tensor_core_product import product, weighted_product
from trainer_adapter.per_sample.gradient_factors import (
    EmbeddingGrad,
    NextTokenGrad,
    OuterProductGrad,
    PerExampleGrad,
    widened,
)
from trainer_adapter.per_sample.rounding_margins import Precision
from trainer_adapter.per_sample.tensor_norms import finite, row_lengths, squares

Summed: TypeAlias = Callable[[Tensor], Tensor]
"""From weights (units,), zero for units that do not count, to the weighted sum, in the shape of the parameter."""

POSITIONS_AT_ONCE: Final = 512
"""Products over positions are summed in blocks of so many."""
ROUNDED_AT_ONCE: Final = 128  # of bfloat16
CONTRACTED_MIN: Final = 64
CONTRACTED_MAX: Final = 4_096
"""How long blocks of an inner product are, at least and at most."""
"""How long blocks of an inner product are, at least and at most."""
BLOCKS_MAX: Final = 256
"""Longer inner products have longer blocks: a graph lists each."""
PIECE_BYTES_MAX: Final = 1 << 26
"""A gradient that is multiplied out for its norm alone is so in pieces of rows of at most this size."""
_DOUBLE: Final = 2.0**-52
_SHARE: Final = 2.0**-10
"""What a norm or a square summed in the work type may be off by, relative: see ``squares``."""


@dataclass(frozen=True, slots=True)
class Products:
    """All uses of one matrix: positions of its linear layers follow each other, rows of its tables are gathered."""

    outer: OuterProductGrad
    table: EmbeddingGrad | None

    @property
    def positions(self) -> int:
        """How many outer products there are."""
        return self.outer.right.shape[1]


def joined(factors: Sequence[PerExampleGrad]) -> Products:
    """The uses of one matrix, one linear layer's at least, put together."""
    outer = [factor for factor in factors if isinstance(factor, OuterProductGrad)]
    tables = [factor for factor in factors if isinstance(factor, EmbeddingGrad)]
    assert outer
    assert len(outer) + len(tables) == len(factors)
    one = outer[0]
    if len(outer) > 1:
        one = OuterProductGrad(torch.cat([use.left for use in outer], 1), torch.cat([use.right for use in outer], 1))
    return Products(one, gathered(tables) if tables else None)


def gathered(tables: Sequence[EmbeddingGrad]) -> EmbeddingGrad:
    """All look-ups of one table, each place once."""
    if len(tables) == 1:
        return tables[0].once()
    places, right = torch.cat([table.places for table in tables], 1), torch.cat([table.right for table in tables], 1)
    return EmbeddingGrad(places, right, tables[0].height).once()


def contracted_at_once(length: int, positions: int) -> int:
    """How long the blocks of an inner product of this length are, where there are so many positions."""
    block = min(max(CONTRACTED_MIN, (1 << 15) // positions), CONTRACTED_MAX)
    return min(length, max(block, ceil(length / BLOCKS_MAX)))


def _entering(positions: int, precision: Precision) -> float:
    """What D roundings, each term's on its way into a weighted sum over positions, can do to it, relative."""
    at_once, sums = _at_once(precision.product or precision.work)
    return precision.of_products(min(positions, at_once) + sums * ceil(positions / at_once) + 3)


def _at_once(factors: torch.dtype) -> tuple[int, int]:
    """Positions of a block of factors of this type, and sums that a block is."""
    return (ROUNDED_AT_ONCE, 2) if factors == torch.bfloat16 else (POSITIONS_AT_ONCE, 1)


def _blocks(outer: OuterProductGrad) -> Iterator[slice]:
    step, _ = _at_once(outer.right.dtype)
    return (slice(start, start + step) for start in range(0, outer.right.shape[1], step))


def _of_inner_products(tall: int, wide: int, positions: int, precision: Precision) -> float:
    left, right = (precision.gamma(contracted_at_once(length, positions) + 1) for length in (tall, wide))
    return (1 + left) * (1 + right) - 1 + positions * positions * _DOUBLE


def typical_margin(kernel: str, shape: tuple[int, int, int], precision: Precision) -> float:
    """By how much the returned norm is above the true one, relative, if positions are orthogonal and equally long.

    Args:
        kernel: its name. Those that square the very tensor that is summed have none.
        shape: positions, and the matrix's height and width.
    """
    positions, tall, wide = shape
    if positions == 1 or kernel not in {"ghost", "dense_product"}:
        return 0.0
    enters = _entering(positions, precision) * sqrt(positions)
    if kernel == "ghost":
        return sqrt(1 + _of_inner_products(tall, wide, positions, precision) * positions) + enters - 1
    return 2 * enters


def norms_ghost(factors: Sequence[PerExampleGrad], precision: Precision) -> tuple[Tensor, Summed]:
    """Ghost norms, from inner products of positions; the sum by one weighted product (a table's: one scatter)."""
    uses = joined(factors)
    left, right = uses.outer.left, uses.outer.right
    if uses.positions == 1 and uses.table is None:
        enters = 0.0 if precision.product is None else _entering(1, precision)
        return squares(left, precision) * squares(right, precision) * (1 + enters) ** 2, _weighted(uses)
    bound = _bound(uses, precision)
    square = (_inner(left, left, uses.positions) * _inner(right, right, uses.positions)).sum(dim=(1, 2))
    error = _of_inner_products(left.shape[2], right.shape[2], uses.positions, precision) * bound.outer.square()
    return bound.with_margin(square, error, uses.table, _crossed(uses)), _weighted(uses)


def norms_dense_product(factors: Sequence[PerExampleGrad], precision: Precision) -> tuple[Tensor, Summed]:
    """Multiplied out piece by piece for the norm alone; the sum by one weighted product."""
    uses = joined(factors)
    bound = _bound(uses, precision)
    units, _, tall = uses.outer.left.shape
    rows = max(1, PIECE_BYTES_MAX // (units * uses.outer.right.shape[2] * precision.work.itemsize))
    square = bound.outer.new_zeros(units)
    for start in range(0, tall, rows):
        square = square + squares(_piece(uses.outer, slice(start, start + rows)), precision)
    off = _entering(uses.positions, precision) * bound.outer
    error = off * (2 * square.sqrt() + off)
    return bound.with_margin(square, error, uses.table, _crossed(uses)), _weighted(uses)


def _piece(outer: OuterProductGrad, rows: slice) -> Tensor:
    """Rows of the gradient, multiplied out; shape (units, rows, d)."""
    total: Tensor | None = None
    for block in _blocks(outer):
        part = product(outer.left[:, block, rows].transpose(1, 2), outer.right[:, block])
        total = part if total is None else total + part
    assert total is not None
    return total


class _Bound:
    """What is added to a square for rounding; see above.

    Attributes:
        outer: the part of S that is of outer products, shape (units,), float64.
    """

    def __init__(self, left: Tensor, right: Tensor, shape: tuple[int, int], precision: Precision) -> None:
        """Of the norms of L's and R's rows, (units, positions), float64; ``shape`` is the matrix's."""
        self._left, self._right, self._shape, self._precision = left, right, shape, precision
        self.outer = (left * right).sum(dim=1) * (1 + _SHARE)

    def with_margin(
        self, square: Tensor, error: Tensor, table: EmbeddingGrad | None, crossed: Tensor | None = None
    ) -> Tensor:
        """The square of N, from that of the outer products and its error; what a table adds is added here.

        ``crossed`` is the inner product of the outer products and the table's rows, shape (units,), float64.
        """
        precision, positions, (tall, wide) = self._precision, self._right.shape[1], self._shape
        lengths = self._left.square().sum(dim=1) + self._right.square().sum(dim=1)
        square, sizes, count = square + error, self.outer, positions
        if table is not None:
            assert crossed is not None
            rows, looked_up = squares(table.right, precision), table.right.shape[1]
            size = rows.sqrt() * (1 + _SHARE)
            off = precision.gamma(contracted_at_once(wide, max(positions, looked_up)) + 1)
            off += positions * looked_up * _DOUBLE
            # What squares may be off by counts here, where they could cancel against what is crossed.
            square = square + _SHARE * (square.abs() + rows) + rows
            square = square + 2 * (crossed + off * self.outer * size)
            sizes, lengths, count = sizes + size, lengths + rows + looked_up, count + looked_up
        underflow = (2 * tall + 2 * wide + count) * count * precision.tiny * lengths
        enters = _entering(positions, precision) * sizes
        # No clamp: it would make zero of a sum that overflowed to minus infinity, and so leave a long gradient whole.
        return ((square + underflow).abs().sqrt() + enters).square()


def _bound(uses: Products, precision: Precision) -> _Bound:
    left, right = uses.outer.left, uses.outer.right
    shape = (left.shape[2], right.shape[2])
    return _Bound(row_lengths(left, precision), row_lengths(right, precision), shape, precision)


def _crossed(uses: Products) -> Tensor | None:
    """The inner product of the outer products and the table's rows, shape (units,), float64; None without a table."""
    if uses.table is None:
        return None
    left = uses.outer.left
    met = left.gather(2, uses.table.places[:, None, :].expand(-1, left.shape[1], -1))
    return _crossed_with(met, uses.outer.right, uses.table)


def _crossed_with(met: Tensor, right: Tensor, table: EmbeddingGrad) -> Tensor:
    """The same, from L at the table's places, (units, positions, looked up)."""
    most = max(right.shape[1], table.right.shape[1])
    return (met.to(torch.float64) * _inner(right, table.right, most)).sum(dim=(1, 2))


def _inner(first: Tensor, other: Tensor, positions: int) -> Tensor:
    """Inner products of rows, shape (units, positions, positions), float64: each block of them in the work type."""
    step = contracted_at_once(first.shape[2], positions)
    total: Tensor | None = None
    for start in range(0, first.shape[2], step):
        block = slice(start, start + step)
        part = (widened(first[:, :, block]) @ widened(other[:, :, block]).transpose(1, 2)).to(torch.float64)
        total = part if total is None else total + part
    assert total is not None
    return total


def _weighted(uses: Products) -> Summed:
    def summed(weights: Tensor) -> Tensor:
        left, right = finite(uses.outer.left * weights[:, None, None]), finite(uses.outer.right)
        total: Tensor | None = None
        for block in _blocks(uses.outer):
            part = weighted_product(left[:, block].flatten(0, 1).T, right[:, block].flatten(0, 1))
            total = part if total is None else total + part
        assert total is not None
        return total if uses.table is None else total + weighted_rows(uses.table)(weights)

    return summed


def weighted_rows(table: EmbeddingGrad) -> Summed:
    """The sum of a table's gradients, by one scatter; each place occurs once in a unit."""

    def summed(weights: Tensor) -> Tensor:
        right = finite(table.right * weights[:, None, None])
        empty = right.new_zeros((table.height, right.shape[2]))
        return empty.index_add(0, table.places.flatten(), right.flatten(0, 1))

    return summed


def norms_next_token(factors: Sequence[PerExampleGrad], precision: Precision) -> tuple[Tensor, Summed]:
    """Of one head, and of the tables it is tied to: norms and sum, chunk by chunk of the vocabulary."""
    (head,) = (factor for factor in factors if isinstance(factor, NextTokenGrad))
    tables = [factor for factor in factors if isinstance(factor, EmbeddingGrad)]
    table = gathered(tables) if tables else None
    units, positions, wide = head.right.shape
    tall = len(head.weight)
    lengths = head.right.new_zeros((units, positions), dtype=torch.float64)
    products = head.right.new_zeros((units, positions, positions), dtype=torch.float64)
    met = None if table is None else head.right.new_zeros((units, positions, table.places.shape[1]))
    for start, left in head.lefts():
        lengths = lengths + row_lengths(left, precision).square()
        products = products + _inner(left, left, positions)
        if met is not None and table is not None:
            met = _met(left, table.places - start, met)
    square = (products * _inner(head.right, head.right, positions)).sum(dim=(1, 2))
    bound = _Bound(lengths.sqrt(), row_lengths(head.right, precision), (tall, wide), precision)
    error = _of_inner_products(tall, wide, positions, precision) * bound.outer.square()
    crossed = None if met is None or table is None else _crossed_with(met, head.right, table)

    def summed(weights: Tensor) -> Tensor:
        parts = (Products(OuterProductGrad(left, head.right), None) for _, left in head.lefts())
        total = torch.cat([_weighted(part)(weights) for part in parts])
        return total if table is None else total + weighted_rows(table)(weights)

    return bound.with_margin(square, error, table, crossed), summed


def _met(left: Tensor, places: Tensor, others: Tensor) -> Tensor:
    """Those columns of ``left`` that ``places`` (units, looked up) names; where it names none of these, ``others``."""
    columns = left.shape[2]
    into = places[:, None, :].expand_as(others)
    return torch.where((into >= 0) & (into < columns), left.gather(2, into.clamp(0, columns - 1)), others)
