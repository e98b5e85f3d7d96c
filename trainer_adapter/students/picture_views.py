"""Other views of a picture that show the same thing: turned, scaled and shifted a little."""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

ANGLE: Final = math.radians(15)
SCALE: Final = 0.15
SHIFT: Final = 0.15
"""Of half a side."""
SLANT: Final = 0.2


def turned_and_shifted(pictures: Tensor, source: torch.Generator) -> Tensor:
    """A view of each picture, as many numbers: shape (records, channels, height, width); beyond the edge are zeros."""
    count = len(pictures)

    def drawn(most: float) -> Tensor:
        return (torch.rand(count, generator=source) * 2 - 1) * most

    turn, slant = drawn(ANGLE), drawn(SLANT)
    wide, high = 1 + drawn(SCALE), 1 + drawn(SCALE)
    maps = torch.stack(
        [
            torch.stack([turn.cos() * wide, (slant - turn.sin()) * wide, drawn(SHIFT)], dim=1),
            torch.stack([turn.sin() * high, turn.cos() * high, drawn(SHIFT)], dim=1),
        ],
        dim=1,
    )
    grid = affine_grid(maps.to(pictures), list(pictures.shape), align_corners=False)
    return grid_sample(pictures, grid, align_corners=False)
