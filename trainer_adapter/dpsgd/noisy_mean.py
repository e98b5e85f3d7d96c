"""The dense tail of a step: noise added to the sum, scaled and rounded to float32, piece by piece in the caches.

Every piece is drawn, multiplied, added, divided and rounded where it lies, in buffers that stay: on a model of millions
of parameters fresh arrays of its size cost more than all of the arithmetic. Pieces are independent, each at its own
place of the keystream, so threads share them and the result is the same whatever their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from trainer_adapter.dpsgd.csprng import NormalPiece, Stream


def noisy_mean(total: Tensor, stream: Stream, noise_std: float, expected: int) -> Tensor:
    """(total + noise_std * normals) / expected, in float64 and then rounded to float32; shape (parameters,).

    Args:
        total: the clipped sum, flat, of any floating-point type.
        stream: opened for this step and not yet read.

    Raises:
        OverflowError: if the stream is too short for so many parameters.
    """
    if total.device.type != "cpu":
        normals = torch.from_numpy(stream.normals((total.numel(),))).to(total.device)
        return ((total + noise_std * normals) / expected).to(torch.float32)
    result, pieces = torch.empty(total.shape, dtype=torch.float32), stream.pieces(total.numel())

    def add(share: Sequence[NormalPiece]) -> None:
        buffer = torch.empty((2, share[0].pairs if share else 0), dtype=torch.float64)
        for piece in share:
            for place, normals in piece.normals(buffer):
                result[place].copy_(normals.mul_(noise_std).add_(total[place]).div_(expected))

    threads = min(torch.get_num_threads(), len(pieces))
    if threads < 2:
        add(pieces)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(add, (pieces[thread::threads] for thread in range(threads))))
    return result
