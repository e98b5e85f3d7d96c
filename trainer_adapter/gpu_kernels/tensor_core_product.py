"""Matrix products of bfloat16 numbers that are added up in float32: a GPU's tensor cores, and the same on a CPU.

A bfloat16 number has 8 significant bits, so each product of two is exact in float32 and additions alone round. Tensor
cores add the terms of a block of four or more without normalising between them, and cut off what does not fit where
float32 would round it (Fasi, Higham, Mikaitis, Pranesh 2021, "Numerical behavior of NVIDIA tensor cores", PeerJ
Computer Science 7:e330). A block of m terms and what came before it are m + 1 numbers, each cut off by at most 2u of
the greatest, and their sum is once more: 2u (m + 2) of the sum of magnitudes, at most 3u a term of four. So k terms
are within k roundings of :data:`ACCUMULATION_UNIT`. A CPU multiplies widened numbers in float32, within the same bound.

What is multiplied by a weight is no bfloat16 number any more. :func:`weighted_product` gives it as a sum of two, whose
second is what rounding the first one left: off by 2^-8 of 2^-8 of it at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch
from torch import Tensor

ACCUMULATION_UNIT: Final = 2.0**-22
"""Relative, of one addition; four times the unit roundoff of float32."""
WEIGHTED_UNIT: Final = 2.0**-16
"""Relative: what a weighted number may be off by as a sum of two of bfloat16; u of bfloat16, squared."""


@contextmanager
def full_sums() -> Iterator[None]:
    """Within it no library adds parts of a product up in bfloat16, as PyTorch lets cuBLAS do by default."""
    settings = torch.backends.cuda.matmul
    before = settings.allow_bf16_reduced_precision_reduction
    settings.allow_bf16_reduced_precision_reduction = False
    try:
        yield
    finally:
        settings.allow_bf16_reduced_precision_reduction = before


def product(left: Tensor, right: Tensor) -> Tensor:
    """``left @ right``, matrices or batches of them; of bfloat16 in float32, of others as PyTorch multiplies them."""
    if left.dtype != torch.bfloat16:
        return left @ right
    if not left.is_cuda:
        return left.to(torch.float32) @ right.to(torch.float32)
    multiply = torch.mm if left.dim() == 2 else torch.bmm
    result: Tensor = multiply(left, right, out_dtype=torch.float32)
    return result


def weighted_product(left: Tensor, right: Tensor) -> Tensor:
    """``left @ right``, of a float32 ``left`` where ``right`` is bfloat16: by two products on tensor cores."""
    if right.dtype != torch.bfloat16:
        return left @ right
    high = left.to(torch.bfloat16)
    low = (left - high.to(torch.float32)).to(torch.bfloat16)
    return product(high, right) + product(low, right)
