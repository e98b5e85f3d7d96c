"""Records as a partition's data hold them: inputs, targets and perhaps users.

They are sealed records, or the bytes of a NumPy archive.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from client.dataset_files.sealed_records import SealedRecords
from client.dataset_files.stored_partition import PartitionData
from ledger.wire.malformed import Malformed


def read_records(data: PartitionData, what: str) -> tuple[Tensor, Tensor]:
    """Inputs (records, ...) and targets (records, ...): float32, or int64 if they are whole numbers.

    Raises:
        Malformed: for what one record cannot change. The shapes and types of the whole decide, never a record's
            value: that would leak it.
    """
    inputs, targets = _arrays(data, what, "inputs", "targets")
    if inputs.dtype.kind not in "fiu" or targets.dtype.kind not in "fiu":
        raise Malformed(what, "must hold numbers as inputs and as targets")
    if not targets.ndim or inputs.shape[:1] != targets.shape[:1]:
        raise Malformed(what, "must have one target for each row of inputs")
    return tensor_of(inputs), tensor_of(targets)


def tensor_of(values: NDArray[Any]) -> Tensor:
    """The numbers as float32, or int64 if they are whole."""
    kind = np.float32 if values.dtype.kind == "f" else np.int64
    with np.errstate(over="ignore", invalid="ignore"):
        return torch.from_numpy(values.astype(kind, copy=False))


def read_users(parts: Mapping[str, PartitionData]) -> Tensor:
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


def _arrays(data: PartitionData, what: str, *names: str) -> tuple[NDArray[Any], ...]:
    if isinstance(data, SealedRecords):
        found = data.arrays(names)
        missing = [name for name in names if name not in found]
        if missing:
            raise Malformed(what, f"has no array {missing[0]}")
        return tuple(found[name] for name in names)
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            return tuple(np.asarray(archive[name]) for name in names)
    except Exception:  # noqa: BLE001 - a damaged archive fails in a dozen ways, and NumPy's words could quote a record
        listed = " and ".join(names)
        raise Malformed(what, f"is not a NumPy archive of {listed}, all of them numbers") from None
