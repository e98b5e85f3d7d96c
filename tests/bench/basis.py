"""Coordinates that public pictures of another kind suggest: fewer, and those that vary much made a little smaller.

The mean, the leading directions and their variances come from the 10,000 test pictures of the *other* data set, which
belong to no partition here: knowledge that anybody has before the run, as weights trained elsewhere would be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from tests.bench import datasets, features

SIZE: Final = 2_000
FLATTENED: Final = 0.4
"""What of a direction's spread is divided out: 0 leaves it, 1 makes all directions alike."""
LENGTH: Final = 50.0
"""About how long a record's features are, in the root of the mean square over the public pictures."""
OTHER: Final = {"mnist": "fashion-mnist", "fashion-mnist": "mnist"}
_VERSION: Final = 1
_AT_ONCE: Final = 2_000


@dataclass(frozen=True)
class Basis:
    """A mean (values,) and directions (values, size) with the scale of each in them."""

    mean: Tensor
    directions: Tensor

    @classmethod
    def of(cls, public: Tensor, size: int = SIZE, flattened: float = FLATTENED) -> Basis:
        """From public features (records, values)."""
        mean = public.mean(dim=0)
        centred = public - mean
        spread, vectors = torch.linalg.eigh((centred.T @ centred).to(torch.float64) / len(public))
        # Rising; the last ones lead.
        leading, variance = vectors.flip(1)[:, :size], spread.flip(0)[:size].clamp(min=0)
        scale = torch.where(variance > 0, variance, 1.0) ** (-flattened / 2)
        length = (variance * scale**2).sum().sqrt()
        return cls(mean, (leading * (LENGTH * scale / length)).to(torch.float32))

    def of_records(self, records: Tensor) -> Tensor:
        """Shape (records, size); every record by itself."""
        parts = [(part - self.mean) @ self.directions for part in torch.split(records, _AT_ONCE)]
        return torch.cat(parts)


def load(name: str) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Coordinates and labels of a set's training and test pictures. Raises: Malformed; OSError."""
    place = datasets.home() / "features" / f"{name}-{SIZE}-{FLATTENED}-{_VERSION}.pt"
    if not place.is_file():
        basis = Basis.of(features.load(OTHER[name], "t10k")[0])
        parts = [features.load(name, part) for part in ("train", "t10k")]
        scratch = place.with_suffix(".partial")
        torch.save([(basis.of_records(inputs), targets) for inputs, targets in parts], scratch)
        scratch.rename(place)
    train, test = torch.load(place, weights_only=True)
    return train, test
