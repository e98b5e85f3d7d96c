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

from trainer_adapter.per_sample.gradient_factors import Factor, Outer, Patches, Rows, Whole
from trainer_adapter.per_sample.gradient_norms import KERNELS, Kernel
from trainer_adapter.per_sample.rounding_margins import Precision

KEPT_BYTES_MAX: Final = 1 << 26
"""Multiplied-out gradients of one parameter are kept until the weights are known only up to this size."""
PASSING_BYTES_MAX: Final = 1 << 29
_ROUNDS: Final = 4


def candidates(factors: Sequence[Factor], size: int, precision: Precision) -> tuple[str, ...]:
    """The ways that can tell the norm of these factors, whose parameter has ``size`` values."""
    kinds = {type(factor) for factor in factors}
    size_bytes = len(_heads(factors[0])) * size * precision.work.itemsize
    if kinds == {Rows}:
        return ("rows",)
    if kinds <= {Outer, Rows}:
        return _of_products(factors, size_bytes, precision)
    if len(factors) == 1 and isinstance(factors[0], Patches):
        fits = size_bytes <= KEPT_BYTES_MAX or precision.exact_sums
        return ("unfolding", "groups") if fits else ("patches",)
    return ("whole",)


def _of_products(factors: Sequence[Factor], size_bytes: int, precision: Precision) -> tuple[str, ...]:
    if sum(_heads(factor).shape[1] for factor in factors) == 1:
        return ("gram",)
    if precision.exact_sums:
        return ("whole",)
    if size_bytes <= KEPT_BYTES_MAX:
        return ("gram", "whole")
    single = all(isinstance(factor, Outer) for factor in factors)
    return ("gram", "product") if single and size_bytes <= PASSING_BYTES_MAX else ("gram",)


_chosen: dict[tuple[object, ...], str] = {}
"""What was measured is measured once in a process: two runs of one model take the same way."""


def choose(factors: Sequence[Factor], size: int, precision: Precision) -> str:
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


def _seconds(kernel: Kernel, factors: Sequence[Factor], precision: Precision) -> float:
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


def _heads(factor: Factor) -> Tensor:
    if isinstance(factor, Whole):
        return factor.value
    return factor.grad if isinstance(factor, Patches) else factor.right


def _shapes(factor: Factor) -> tuple[object, ...]:
    if isinstance(factor, Patches):
        rest = (factor.kernel, factor.stride, factor.padding, factor.dilation, factor.groups)
        return ("patches", factor.inputs.device, *factor.inputs.shape, *factor.grad.shape, *rest)
    if isinstance(factor, Outer):
        return ("outer", factor.left.device, *factor.left.shape, *factor.right.shape)
    if isinstance(factor, Rows):
        return ("rows", factor.right.device, *factor.right.shape, factor.height)
    return ("whole", factor.value.device, *factor.value.shape)


def _public(factor: Factor) -> Factor:
    if isinstance(factor, Patches):
        return replace(factor, inputs=torch.rand_like(factor.inputs), grad=torch.rand_like(factor.grad))
    if isinstance(factor, Outer):
        return Outer(torch.rand_like(factor.left), torch.rand_like(factor.right))
    if isinstance(factor, Rows):
        return Rows(torch.zeros_like(factor.places), torch.rand_like(factor.right), factor.height)
    return Whole(torch.rand_like(factor.value))
