"""The choice of the kernel for a parameter's gradient norms: the fastest one, measured on public random tensors.

Only shapes, types and the device count, never a value; what was measured is cached for the process. A run whose graph
is compiled also keeps it on disk, in the folder of TorchInductor's cache (``TORCHINDUCTOR_CACHE_DIR``): another choice
is another graph, which would be compiled anew. Anyone who writes there chooses among kernels that are all right.
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from importlib import import_module
from math import sqrt
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from ledger.files.atomic_file import replace_file
from trainer_adapter.per_sample.gradient_factors import (
    ConvGrad,
    EmbeddingGrad,
    NextTokenGrad,
    OuterProductGrad,
    PerExampleGrad,
)
from trainer_adapter.per_sample.gradient_norms import KERNELS, Kernel
from trainer_adapter.per_sample.outer_product_norms import typical_margin
from trainer_adapter.per_sample.rounding_margins import Precision

KEPT_BYTES_MAX: Final = 1 << 26
"""Multiplied-out gradients of one parameter are kept until the weights are known only up to this size."""
TYPICAL_MARGIN_MAX: Final = 1 / 200
"""A kernel whose norms of orthogonal positions exceed the true ones by more is chosen only where no other is better."""
_ROUNDS: Final = 4
CHOICES_FILE: Final = "epsilon-kernels-1.json"
CHOICES_BYTES_MAX: Final = 1 << 22
"""Of the file that keeps which kernels were chosen."""


def candidates(factors: Sequence[PerExampleGrad], size: int, precision: Precision) -> tuple[str, ...]:
    """The kernels that can compute the norms of these gradients, whose parameter has ``size`` values."""
    kinds = {type(factor) for factor in factors}
    units = len(next(iter(_tensors(factors[0]).values())))
    size_bytes = units * size * precision.work.itemsize
    if kinds == {EmbeddingGrad}:
        return ("embedding_rows",)
    if NextTokenGrad in kinds and kinds <= {NextTokenGrad, EmbeddingGrad} and not precision.exact_sums:
        return ("next_token",) if sum(isinstance(one, NextTokenGrad) for one in factors) == 1 else ("dense",)
    if kinds <= {OuterProductGrad, EmbeddingGrad}:
        return _of_products(factors, size_bytes, precision)
    if len(factors) == 1 and isinstance(factors[0], ConvGrad):
        rounds = margin_of("conv_backward", factors, precision) > TYPICAL_MARGIN_MAX
        fits = size_bytes <= KEPT_BYTES_MAX or precision.exact_sums or rounds
        return ("unfolded_conv", "grouped_conv") if fits else ("conv_backward",)
    return ("dense",)


def _of_products(factors: Sequence[PerExampleGrad], size_bytes: int, precision: Precision) -> tuple[str, ...]:
    first = factors[0]
    if len(factors) == 1 and isinstance(first, OuterProductGrad) and first.right.shape[1] == 1:
        return ("ghost",)
    if precision.exact_sums:
        return ("dense",)
    margins = {name: margin_of(name, factors, precision) for name in ("ghost", "dense_product")}
    names = tuple(name for name, margin in margins.items() if margin <= TYPICAL_MARGIN_MAX)
    if size_bytes <= KEPT_BYTES_MAX:
        # Multiplied out and kept, nothing but the weighted sum is left to do.
        return (*(name for name in names if name == "ghost"), "dense")
    return names or (min(margins, key=lambda name: margins[name]),)


def margin_of(kernel: str, factors: Sequence[PerExampleGrad], precision: Precision) -> float:
    """By how much the norms that a kernel computes are above true ones, relative, where positions are orthogonal."""
    outer = [factor for factor in factors if isinstance(factor, OuterProductGrad)]
    if outer:
        positions = sum(factor.right.shape[1] for factor in outer)
        return typical_margin(kernel, (positions, outer[0].left.shape[2], outer[0].right.shape[2]), precision)
    for factor in factors:
        if isinstance(factor, NextTokenGrad) and kernel == "next_token":
            shape = (factor.right.shape[1], *factor.weight.shape)
            return typical_margin("ghost", (shape[0], shape[1], shape[2]), precision)
    first = factors[0]
    if kernel == "conv_backward" and isinstance(first, ConvGrad):
        positions = first.grad.shape[1] * first.grad[0, 0, 0].numel()
        return precision.gamma(2 * positions + 2) * sqrt(positions)
    return 0.0


_chosen: dict[tuple[object, ...], str] = {}
"""A cache for the process: two runs of one model use the same kernels."""


def choose(factors: Sequence[PerExampleGrad], size: int, precision: Precision, *, on_disk: bool = False) -> str:
    """The fastest of the candidates, measured on random tensors of the same shapes.

    Args:
        on_disk: whether the choice is that of an earlier process, and kept for later ones.
    """
    names = candidates(factors, size, precision)
    if len(names) == 1:
        return names[0]
    key = (precision.name, size, torch.get_num_threads(), *(_layout(factor) for factor in factors))
    if key not in _chosen and on_disk and (known := _load_choices().get(_digest(key))) in names:
        _chosen[key] = known
    if key not in _chosen:
        public = [_public(factor) for factor in factors]
        # In turns, so that none finds its own data in the caches; processor time, so that other processes do not count.
        times = [{name: _seconds(KERNELS[name], public, precision) for name in names} for _ in range(_ROUNDS)]
        _chosen[key] = min(names, key=lambda name: min(measured[name] for measured in times))
    if on_disk:
        _save_choices(_digest(key), _chosen[key])
    return _chosen[key]


def _digest(key: tuple[object, ...]) -> str:
    """A layout's name on disk: its shapes, and the versions and the device that decide what is fast."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else torch.backends.cpu.get_cpu_capability()
    return hashlib.sha256(repr((torch.__version__, platform.machine(), device, key)).encode()).hexdigest()


def _file() -> Path:
    # Loading the compiler takes as long as the rest of PyTorch, and a run that is not compiled needs none of it.
    return Path(import_module("torch._inductor.runtime.cache_dir_utils").cache_dir()) / CHOICES_FILE


def _load_choices() -> dict[str, str]:
    """The choices on disk; none where they cannot be read: they are measured again."""
    try:
        with _file().open("rb") as file:
            document = json.loads(file.read(CHOICES_BYTES_MAX))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _save_choices(layout: str, name: str) -> None:
    """Write a choice beside the others; one that another process writes at the same moment may be measured again."""
    known = _load_choices()
    if known.get(layout) != name:
        try:
            replace_file(_file(), json.dumps({**known, layout: name}, sort_keys=True).encode())
        except OSError:
            # Where nothing can be written, a later process measures by itself.
            return


def _seconds(kernel: Kernel, factors: Sequence[PerExampleGrad], precision: Precision) -> float:
    on_gpu = next(iter(_tensors(factors[0]).values())).is_cuda
    clock = time.perf_counter if on_gpu else time.process_time
    if on_gpu:
        torch.cuda.synchronize()
    start = clock()
    norms, summed = kernel(factors, precision)
    summed(norms.to(precision.work))
    if on_gpu:
        torch.cuda.synchronize()
    return clock() - start


def _tensors(grad: PerExampleGrad) -> dict[str, Tensor]:
    """Its tensors by name; all begin with the units' dimension."""
    values = {member.name: getattr(grad, member.name) for member in fields(grad)}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}


def _layout(grad: PerExampleGrad) -> tuple[object, ...]:
    """Its shapes, device and geometry, and no value of a record."""
    values = (getattr(grad, member.name) for member in fields(grad))
    return (type(grad), *((value.device, *value.shape) if isinstance(value, Tensor) else value for value in values))


def _public(grad: PerExampleGrad) -> PerExampleGrad:
    """The same layout with random numbers, and zeros as indices; PyTorch's own generators draw none of them."""
    made: dict[str, Any] = {}
    for name, value in _tensors(grad).items():
        if value.is_floating_point():
            drawn = torch.Generator(value.device).manual_seed(1)
            made[name] = torch.empty_like(value).uniform_(generator=drawn)
        else:
            made[name] = torch.zeros_like(value)
    return replace(grad, **made)
