"""What a linear model reads of a picture: its scattering coefficients, normalised within the picture, in float32.

Tramèr and Boneh 2021 (arXiv 2011.11660, section 3): 81 maps in 27 groups, each group brought to mean 0 and variance
1 within the one image. No image looks at another, so nothing here is charged. Worked out once and kept.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import group_norm

from tests.bench import datasets, idx
from tests.bench.scattering import PATHS, STRIDE, scatter

GROUPS: Final = 27
SIZE: Final = PATHS * (idx.SIDE // STRIDE) ** 2
VERSION: Final = 1
"""Of what is kept: another recipe takes another number."""
_AT_ONCE: Final = 250


def of_pictures(pictures: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Shape (records, 3969) from pictures (records, 28, 28)."""
    found = np.empty((len(pictures), SIZE), dtype=np.float32)
    for start in range(0, len(pictures), _AT_ONCE):
        part = torch.from_numpy(pictures[start : start + _AT_ONCE].astype(np.float32) / 255)
        found[start : start + _AT_ONCE] = group_norm(scatter(part), GROUPS).flatten(1).numpy()
    return found


def load(name: str, part: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Features (records, 3969) and labels (records,) of ``train`` or ``t10k``. Raises: Malformed; OSError."""
    package = datasets.PACKAGES[name]
    pictures, labels = idx.images(package, part)
    place = datasets.home() / "features" / f"{name}-{part}-{package.sha256[:12]}-{VERSION}.npy"
    if not place.is_file():
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(dir=place.parent, suffix=".npy")
        os.close(handle)
        np.save(scratch, of_pictures(pictures))
        Path(scratch).rename(place)
    return torch.from_numpy(np.load(place)), torch.from_numpy(labels.astype(np.int64))
