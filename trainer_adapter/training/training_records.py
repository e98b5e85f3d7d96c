"""Records as a partition's decrypted bytes hold them: a NumPy archive of inputs, targets and perhaps users."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ledger.wire.malformed import Malformed


def read_records(data: bytes, what: str) -> tuple[Tensor, Tensor]:
    """Inputs (records, ...), float32, or int64 if they are whole numbers, and targets (records,), int64.

    Raises:
        Malformed: for what one record cannot change. The shapes and types of the whole decide, never a record's
            value: that would leak it.
    """
    inputs, targets = _arrays(data, what, "inputs", "targets")
    if inputs.dtype.kind not in "fiu" or targets.dtype.kind not in "iu":
        raise Malformed(what, "must hold numbers as inputs and integers as targets")
    if inputs.shape[:1] != targets.shape:
        raise Malformed(what, "must have one target for each row of inputs")
    kind = np.float32 if inputs.dtype.kind == "f" else np.int64
    with np.errstate(over="ignore", invalid="ignore"):
        inputs = inputs.astype(kind)
    return torch.from_numpy(inputs), torch.from_numpy(targets.astype(np.int64))


def read_users(parts: Mapping[str, bytes]) -> Tensor:
    """Whose each record is, over all partitions in order, shape (records,), int64, from the archives' ``users``.

    Partitions share no person: the same number in two of them is two users.

    Raises:
        Malformed: for what one record cannot change.
    """
    users, count = [], 0
    for what, data in parts.items():
        (one,) = _arrays(data, what, "users")
        if one.dtype.kind not in "iu" or one.ndim != 1:
            raise Malformed(what, "must hold one integer for each record as users")
        _, numbered = np.unique(one, return_inverse=True)
        users.append(torch.from_numpy(numbered.astype(np.int64) + count))
        count += len(one)
    return torch.cat(users)


def _arrays(data: bytes, what: str, *names: str) -> tuple[NDArray[Any], ...]:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            return tuple(np.asarray(archive[name]) for name in names)
    except Exception:  # noqa: BLE001 - a damaged archive fails in a dozen ways, and NumPy's words could quote a record
        listed = " and ".join(names)
        raise Malformed(what, f"is not a NumPy archive of {listed}, all of them numbers") from None
