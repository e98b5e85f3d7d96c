"""How ``noise_step`` is launched: the layout of its programs, and the tables that they read.

A stream's whole pieces begin at multiples of eight words, its last one may not: then its words are drawn one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
import triton
from torch import Tensor

from trainer_adapter.gpu_kernels.noise_step import LANES, WIDTH, noise_step
from trainer_adapter.gpu_kernels.weight_update import FACTORS, MEAN, WeightUpdate


def noisy_mean(total: Tensor, seed: bytes, scales: tuple[float, float], piece: int) -> Tensor:
    """(total + noise_std * normals) / expected in float64, rounded to float32; shape (parameters,).

    Args:
        total: the clipped sum, flat, float32 or float64, on the device.
        seed: key and nonce of a stream that gives nothing else, 44 bytes.
        scales: noise_std and expected. piece: pairs of a piece, a multiple of ``WIDTH``.
    """
    # A value that no program writes must neither be what the memory held before, which may be a sum before noise, nor a
    # number: NaN ends as a model of NaN, and costs one pass of writing.
    mean = torch.full(total.shape, torch.nan, dtype=torch.float32, device=total.device)
    if total.numel():
        _launch(total, mean, seed, scales, (), MEAN, piece)
    return mean


def updated(  # noqa: PLR0913, PLR0917 - as the mean, and what is done with it
    total: Tensor, seed: bytes, scales: tuple[float, float], updates: Sequence[WeightUpdate], kind: int, piece: int
) -> None:
    """The same, made at once an update of each weight, in the order of ``total``.

    Args:
        kind: ``SGD`` or ``ADAM``. updates: of all weights that ``total`` is of, each float32 and contiguous.
    """
    if total.numel():
        _launch(total, total, seed, scales, updates, kind, piece)


def _launch(  # noqa: PLR0913, PLR0917 - what the kernel reads
    total: Tensor,
    mean: Tensor,
    seed: bytes,
    scales: tuple[float, float],
    updates: Sequence[WeightUpdate],
    kind: int,
    piece: int,
) -> None:
    device, count = total.device, total.numel()
    sizes = tuple(update.weight.numel() for update in updates) or (count,)
    starts, numbers = layout(sizes, device)
    addresses = [
        [0 if part is None else part.data_ptr() for part in column]
        for column in zip(*((update.weight, update.first, update.second) for update in updates), strict=True)
    ]
    weights = torch.tensor(addresses or [[0]], dtype=torch.int64, device=device)
    factors = torch.tensor([one.factors for one in updates] or [[0.0] * FACTORS], dtype=torch.float64, device=device)
    told = torch.tensor(scales, dtype=torch.float64, device=device)
    key = torch.from_numpy(np.frombuffer(seed, dtype="<i4").copy()).to(device)
    whole = (count + 1) // 2 // piece * piece
    rest = (count + 1) // 2 - whole
    for pairs, skipped, aligned in ((whole, 0, True), (rest, whole // WIDTH, rest % 8 == 0)):
        if pairs:
            noise_step[triton.cdiv(pairs, WIDTH),](
                total, mean, key, told, starts, numbers, weights, factors,
                count, len(sizes), skipped, kind=kind, aligned=aligned, piece=piece, lanes=LANES,
                enable_fp_fusion=False,
            )  # fmt: skip
    # In the order of the device's work: the key is read no more, and stays nowhere in its memory.
    key.zero_()


@lru_cache(maxsize=8)
def layout(sizes: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Where each weight starts among all values, (weights + 1,), and which two a program begins in, (programs, 2)."""
    starts = torch.tensor([0, *sizes]).cumsum(0)
    count = int(starts[-1])
    pairs = (count + 1) // 2
    first = torch.arange(0, pairs, WIDTH)
    places = torch.stack([first, (first + pairs).clamp(max=count - 1)], dim=1)
    numbers = torch.searchsorted(starts, places, right=True) - 1
    return starts.to(device), numbers.contiguous().to(device)
