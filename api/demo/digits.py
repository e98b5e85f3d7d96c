"""The demonstration's records: scikit-learn's digits (UCI, 1,797 images of 8 by 8), split by a public function.

Each record has one place in the order of SHA-256("digits/<row>"). The first 360 are the public test set and belong
to no partition; then come two partitions of 700, disjoint for ever.
"""

from __future__ import annotations

import hashlib
import io
from typing import Final

import numpy as np
from numpy.typing import NDArray

TEST: Final = slice(0, 360)
FIRST: Final = slice(360, 1060)
SECOND: Final = slice(1060, 1760)
RECORDS: Final = 700
CLASSES: Final = 10
_PIXEL_MAX: Final = 16


def archive(part: slice) -> bytes:
    """A NumPy archive of ``inputs`` (records, 64), from 0 to 1, and ``targets`` (records,)."""
    inputs, targets = _arrays(part)
    file = io.BytesIO()
    np.savez(file, inputs=inputs, targets=targets)
    return file.getvalue()


def identities(part: slice) -> list[bytes]:
    """What each record is committed by: its numbers."""
    return [b"record\n" + inputs.tobytes() + target.tobytes() for inputs, target in zip(*_arrays(part), strict=True)]


def _arrays(part: slice) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = sorted(range(len(digits.target)), key=_place)[part]
    return (digits.data[order] / _PIXEL_MAX).astype(np.float32), digits.target[order]


def _place(row: int) -> bytes:
    return hashlib.sha256(f"digits/{row}".encode()).digest()
