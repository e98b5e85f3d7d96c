"""The dense tail of a step: noise added to the sum, scaled, rounded to float32 and taken as an update, piece by piece.

Every piece is drawn, multiplied, added, divided and rounded where it lies, in buffers that stay: on a model of millions
of parameters fresh arrays of its size cost more than all of the arithmetic. Pieces are independent, each at its own
place of the keystream, so threads share them and the result is the same whatever their number. On a CUDA device with
Triton one kernel does all of it (``gpu_kernels``).

A piece is float64 until it is rounded once, at its end: the noise, since its uniforms have 53 bits, of which float32
would keep 24, and its tail would end at 5.77 standard deviations in place of 8.57; the sum, since no margin covers
additions in float32 (``microbatch_total``), but for a draw of one microbatch, which stays as it is. The update after it
is float32.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import TypeAlias

import torch
from torch import Tensor

from trainer_adapter.dpsgd import known_updates
from trainer_adapter.dpsgd.csprng import PAIRS_AT_ONCE, NormalPiece, PieceBuffer, Stream
from trainer_adapter.gpu_kernels.availability import has_kernels
from trainer_adapter.gpu_kernels.weight_update import ADAM, WeightUpdate

Take: TypeAlias = Callable[[slice, Tensor], None]
"""What is done with the noisy mean of a piece, float64, which is used up: its place, and its values."""


def noisy_mean(total: Tensor, stream: Stream, noise_std: float, expected: int) -> Tensor:
    """(total + noise_std * normals) / expected, in float64 and then rounded to float32; shape (parameters,).

    Args:
        total: the clipped sum, flat, of any floating-point type. It is used up: on a CPU the mean takes the place of
            one in float32.
        stream: opened for this step and not yet read.

    Raises:
        OverflowError: if the stream is too short for so many parameters.
    """
    if has_kernels(total.device):
        from trainer_adapter.gpu_kernels import noise_launch

        return noise_launch.noisy_mean(total, stream.seed(total.numel()), (noise_std, float(expected)), PAIRS_AT_ONCE)
    if total.device.type != "cpu":
        normals = torch.from_numpy(stream.normals((total.numel(),))).to(total.device)
        return ((total + noise_std * normals) / expected).to(torch.float32)
    result = total if total.dtype == torch.float32 else torch.empty(total.shape, dtype=torch.float32)

    def keep(place: slice, noisy: Tensor) -> None:
        result[place].copy_(noisy)

    _for_each_piece(total, stream, noise_std, expected, keep)
    return result


def noisy_update(  # noqa: PLR0913, PLR0917 - as the mean, and what is done with it
    total: Tensor, stream: Stream, noise_std: float, expected: int, updates: Sequence[WeightUpdate], kind: int
) -> None:
    """Take :func:`noisy_mean` as the gradient of all weights, in their order, and update them by a known rule.

    Raises: OverflowError, as there.
    """
    if has_kernels(total.device):
        from trainer_adapter.gpu_kernels import noise_launch

        seed, scales = stream.seed(total.numel()), (noise_std, float(expected))
        noise_launch.updated(total, seed, scales, updates, kind, PAIRS_AT_ONCE)
        return
    starts = list(accumulate((update.weight.numel() for update in updates), initial=0))

    def update(place: slice, noisy: Tensor) -> None:
        gradient, number = noisy.to(torch.float32), bisect_right(starts, place.start) - 1
        while number < len(updates) and starts[number] < place.stop:
            begin, end = max(starts[number], place.start), min(starts[number + 1], place.stop)
            own = slice(begin - starts[number], end - starts[number])
            known_updates.apply(updates[number], kind, own, gradient[begin - place.start : end - place.start])
            number += 1

    with torch.no_grad():
        _for_each_piece(total, stream, noise_std, expected, update)


def updates_in_pieces(device: torch.device, kind: int) -> bool:
    """Whether :func:`noisy_update` is the faster way there.

    A kernel is. On a CPU Adam's many passes over the weights are shorter in the caches; SGD's one or two gain nothing.
    """
    return has_kernels(device) or (device.type == "cpu" and kind == ADAM)


def _for_each_piece(total: Tensor, stream: Stream, noise_std: float, expected: int, take: Take) -> None:
    pieces = stream.pieces(total.numel())

    def run(share: Sequence[NormalPiece]) -> None:
        buffer = PieceBuffer()
        # Of a thread: it has no gradient mode of its caller's.
        with torch.no_grad():
            for piece in share:
                for place, normals in piece.normals(buffer):
                    take(place, normals.mul_(noise_std).add_(total[place]).div_(expected))

    threads = min(torch.get_num_threads(), len(pieces))
    if threads < 2:
        run(pieces)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(run, (pieces[thread::threads] for thread in range(threads))))
