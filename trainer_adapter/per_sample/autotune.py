"""Which kernel takes a parameter's norms: the fastest of those that can, measured on public random tensors.

Only shapes, types and the device are looked at, never a value; what was measured stands for the process.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from trainer_adapter.per_sample.gradient_factors import (
    ConvGrad,
    DenseGrad,
    EmbeddingGrad,
    OuterProductGrad,
    PerExampleGrad,
)
from trainer_adapter.per_sample.gradient_norms import KERNELS, Kernel
from trainer_adapter.per_sample.rounding_margins import Precision

KEPT_BYTES_MAX: Final = 1 << 26
"""Multiplied-out gradients of one parameter are kept until the weights are known only up to this size."""
PASSING_BYTES_MAX: Final = 1 << 29
_ROUNDS: Final = 4


def candidates(factors: Sequence[PerExampleGrad], size: int, precision: Precision) -> tuple[str, ...]:
    """The ways that can tell the norm of these factors, whose parameter has ``size`` values."""
    kinds = {type(factor) for factor in factors}
    size_bytes = len(_heads(factors[0])) * size * precision.work.itemsize
    if kinds == {EmbeddingGrad}:
        return ("embedding_rows",)
    if kinds <= {OuterProductGrad, EmbeddingGrad}:
        return _of_products(factors, size_bytes, precision)
    if len(factors) == 1 and isinstance(factors[0], ConvGrad):
        fits = size_bytes <= KEPT_BYTES_MAX or precision.exact_sums
        return ("unfolded_conv", "grouped_conv") if fits else ("conv_backward",)
    return ("dense",)


def _of_products(factors: Sequence[PerExampleGrad], size_bytes: int, precision: Precision) -> tuple[str, ...]:
    if sum(_heads(factor).shape[1] for factor in factors) == 1:
        return ("ghost",)
    if precision.exact_sums:
        return ("dense",)
    if size_bytes <= KEPT_BYTES_MAX:
        return ("ghost", "dense")
    single = all(isinstance(factor, OuterProductGrad) for factor in factors)
    return ("ghost", "dense_product") if single and size_bytes <= PASSING_BYTES_MAX else ("ghost",)


_chosen: dict[tuple[object, ...], str] = {}
"""What was measured is measured once in a process: two runs of one model take the same way."""


def choose(factors: Sequence[PerExampleGrad], size: int, precision: Precision) -> str:
    """The fastest of the candidates on random tensors of the factors' shapes, and no value of theirs."""
    names = candidates(factors, size, precision)
    if len(names) == 1:
        return names[0]
    key = (precision.name, size, torch.get_num_threads(), *(_shapes(factor) for factor in factors))
    if key not in _chosen:
        public = [_public(factor) for factor in factors]
        # By turns, so that none finds its own data in the caches; processor time, so that neighbours do not count.
        times = [{name: _seconds(KERNELS[name], public, precision) for name in names} for _ in range(_ROUNDS)]
        _chosen[key] = min(names, key=lambda name: min(measured[name] for measured in times))
    return _chosen[key]


def _seconds(kernel: Kernel, factors: Sequence[PerExampleGrad], precision: Precision) -> float:
    on_gpu = _heads(factors[0]).is_cuda
    clock = time.perf_counter if on_gpu else time.process_time
    if on_gpu:
        torch.cuda.synchronize()
    start = clock()
    norms, summed = kernel(factors, precision)
    summed(norms.to(precision.work))
    if on_gpu:
        torch.cuda.synchronize()
    return clock() - start


def _heads(factor: PerExampleGrad) -> Tensor:
    if isinstance(factor, DenseGrad):
        return factor.value
    return factor.grad if isinstance(factor, ConvGrad) else factor.right


def _shapes(factor: PerExampleGrad) -> tuple[object, ...]:
    if isinstance(factor, ConvGrad):
        rest = (factor.kernel, factor.stride, factor.padding, factor.dilation, factor.groups)
        return ("conv_backward", factor.inputs.device, *factor.inputs.shape, *factor.grad.shape, *rest)
    if isinstance(factor, OuterProductGrad):
        return ("outer", factor.left.device, *factor.left.shape, *factor.right.shape)
    if isinstance(factor, EmbeddingGrad):
        return ("embedding_rows", factor.right.device, *factor.right.shape, factor.height)
    return ("dense", factor.value.device, *factor.value.shape)


def _public(factor: PerExampleGrad) -> PerExampleGrad:
    if isinstance(factor, ConvGrad):
        return replace(factor, inputs=torch.rand_like(factor.inputs), grad=torch.rand_like(factor.grad))
    if isinstance(factor, OuterProductGrad):
        return OuterProductGrad(torch.rand_like(factor.left), torch.rand_like(factor.right))
    if isinstance(factor, EmbeddingGrad):
        return EmbeddingGrad(torch.zeros_like(factor.places), torch.rand_like(factor.right), factor.height)
    return DenseGrad(torch.rand_like(factor.value))
