"""Records whose model never leaves: scikit-learn's breast tumours (UCI, 569 cell images in 30 numbers, benign or not).

Each record has one place in the order of SHA-256("tumours/<row>"). The first are public, the patients of the clinic
that asks, and belong to no partition. Numbers are scaled by the public ones' mean and deviation.
"""

from __future__ import annotations

import hashlib
import io
from typing import Final

import numpy as np
from numpy.typing import NDArray

PUBLIC: Final = slice(0, 69)
PRIVATE: Final = slice(69, 569)
RECORDS: Final = 500
CLASSES: Final = 2


def archive(part: slice) -> bytes:
    """A NumPy archive of ``inputs`` (records, 30), and ``targets`` (records,): 0 malignant, 1 benign."""
    file, (inputs, targets) = io.BytesIO(), _arrays(part)
    np.savez(file, inputs=inputs, targets=targets)
    return file.getvalue()


def questions(count: int) -> tuple[bytes, list[int]]:
    """An archive of the first public records' ``inputs`` alone, and what the clinic itself knows of them."""
    file, (inputs, targets) = io.BytesIO(), _arrays(slice(PUBLIC.start, count))
    np.savez(file, inputs=inputs)
    return file.getvalue(), targets.tolist()


def identities(part: slice) -> list[bytes]:
    """What each record is committed by: its numbers."""
    return [b"record\n" + inputs.tobytes() + target.tobytes() for inputs, target in zip(*_arrays(part), strict=True)]


def _arrays(part: slice) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    from sklearn.datasets import load_breast_cancer

    held = load_breast_cancer()
    order = sorted(range(len(held.target)), key=lambda row: hashlib.sha256(f"tumours/{row}".encode()).digest())
    public = held.data[order[PUBLIC]]
    scaled = (held.data - public.mean(axis=0)) / public.std(axis=0)
    return scaled[order[part]].astype(np.float32), held.target[order[part]].astype(np.int64)
