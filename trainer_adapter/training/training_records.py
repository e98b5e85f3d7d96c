"""Records as a partition's data hold them: inputs, targets and perhaps users.

They are sealed records, or the bytes of a NumPy archive. Inputs and targets are one array each, or several whose names
begin with ``inputs.`` or ``targets.``: see :mod:`client.dataset_files.record_parts`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from client.dataset_files.declared.declaration import RECORDS_MAX
from client.dataset_files.record_parts import PARTS, TARGETS, assembled, names_of
from client.dataset_files.sealed_records import SealedRecords
from client.dataset_files.stored_partition import PartitionData
from client.service.registry_reads import unit_records
from ledger.mechanisms.run_plan import RECORD
from ledger.wire.canonical_json import Object, integer
from ledger.wire.malformed import Malformed
from trainer_adapter.layers.tensor_trees import count_records


def read_records(data: PartitionData, what: str) -> tuple[Any, Any]:
    """Inputs (records, ...) and targets (records, ...): float32, or int64 if they are whole numbers.

    Each is a tensor, or a dictionary of tensors.

    Raises:
        Malformed: for what one record cannot change. The shapes and types of the whole decide, never a record's
            value: that would leak it.
    """
    parts = {part: read_arrays(data, what, *names_of(part, array_names(data, what)) or (part,)) for part in PARTS}
    arrays = {name: array for part in parts.values() for name, array in part.items()}
    if any(array.dtype.kind not in "fiu" for array in arrays.values()):
        raise Malformed(what, "must hold numbers as inputs and as targets")
    lengths = {array.shape[:1] for array in arrays.values()}
    if () in lengths or len(lengths) != 1:
        raise Malformed(what, "must have one target for each row of inputs")
    inputs, targets = (
        assembled(part, {name: tensor_of(array) for name, array in parts[part].items()}, what) for part in PARTS
    )
    return inputs, targets


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
        one = user_numbers(data, what)
        _, numbered = np.unique(one, return_inverse=True)
        users.append(torch.from_numpy(numbered.astype(np.int64) + count))
        count += len(one)
    return torch.cat(users)


def user_numbers(data: PartitionData, what: str) -> NDArray[Any]:
    """Whose each record of one partition is, as its ``users`` number them, shape (records,). Raises: Malformed."""
    arrays = read_arrays(data, what, "users")["users"]
    if arrays.dtype.kind not in "iu" or arrays.ndim != 1:
        raise Malformed(what, "must hold one integer for each record as users")
    return arrays


def counted_records(
    opened: Mapping[str, PartitionData],
    bounds: Mapping[str, int],
    read: Callable[[PartitionData, str], tuple[Any, Any]],
) -> Tensor | None:
    """Which records of all partitions count, in order, shape (records,), bool; None: all.

    Args:
        bounds: of partitions whose records name their users: how many of one user count, the first ones.
        read: gives inputs and targets of a partition.

    Raises:
        Malformed: for what one record cannot change.
    """
    if not bounds:
        return None
    counted = list[Tensor]()
    for ref, data in opened.items():
        if ref in bounds:
            counted.append(_first_of_each(user_numbers(data, ref), bounds[ref]))
        else:
            # Records that are sealed one by one may stay on disk.
            records = len(data) if isinstance(data, SealedRecords) else count_records(read(data, ref)[0], "inputs")
            counted.append(torch.ones(records, dtype=torch.bool))
    return torch.cat(counted)


def _first_of_each(users: NDArray[Any], most: int) -> Tensor:
    order, places = np.argsort(users, kind="stable"), np.arange(len(users))
    begins = np.diff(users[order], prepend=users[order][:1] - 1) != 0
    rank = places - np.maximum.accumulate(np.where(begins, places, 0))
    counted = np.empty(len(users), dtype=np.bool_)
    counted[order] = rank < most
    return torch.from_numpy(counted)


def own_records(data: PartitionData, what: str) -> int | None:
    """How many records a partition's data hold; None where they are no archive with targets, but bytes of another form.

    Raises: Malformed.
    """
    if isinstance(data, SealedRecords):
        return len(data)
    try:
        names = names_of(TARGETS, array_names(data, what))
    except Malformed:
        return None
    shapes = {array.shape[:1] for array in read_arrays(data, what, *names).values()}
    return shapes.pop()[0] if len(shapes) == 1 and () not in shapes else None


def stated_records(partition: Object) -> int:
    """How many records a partition has at most, as its provider opened it: its units, and the records of each."""
    units = integer(partition["records"], "records", 0, RECORDS_MAX)
    return units if partition["unit"] == RECORD else units * unit_records(partition)


def array_names(data: PartitionData, what: str) -> tuple[str, ...]:
    """The names of a partition's arrays. Raises: Malformed."""
    if isinstance(data, SealedRecords):
        return data.layout.dtype.names or ()
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            return tuple(archive.files)
    except Exception:  # noqa: BLE001 - a damaged archive fails in a dozen ways, and NumPy's words could quote a record
        raise _damaged(what, PARTS) from None


def read_arrays(data: PartitionData, what: str, *names: str) -> dict[str, NDArray[Any]]:
    """Some of them, whole, by name. Raises: Malformed, where one is missing."""
    if isinstance(data, SealedRecords):
        arrays = data.arrays(names)
        missing = [name for name in names if name not in arrays]
        if missing:
            raise Malformed(what, f"has no array {missing[0]}")
        return {name: arrays[name] for name in names}
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            return {name: np.asarray(archive[name]) for name in names}
    except Exception:  # noqa: BLE001 - as above
        raise _damaged(what, names if len(names) == 1 else PARTS) from None


def _damaged(what: str, names: Iterable[str]) -> Malformed:
    return Malformed(what, f"is not a NumPy archive of {' and '.join(names)}, all of them numbers")
