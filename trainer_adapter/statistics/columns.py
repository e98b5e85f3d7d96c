"""The columns of the records that count, as numbers: what a charged statistic is computed from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from client.dataset_files.stored_partition import PartitionData
from ledger.wire.malformed import Malformed
from trainer_adapter.layers.tensor_trees import TensorTree, count_records
from trainer_adapter.training.training_records import read_records

Values = NDArray[np.float64]
_COLUMN: Final = re.compile(r"(inputs|targets)(?:\.([^\[]+))?(?:\[([0-9]+)\])?")


class RecordColumns:
    """Columns of the records of all partitions together, by the names that a statistic gives them.

    Attributes:
        records: how many count; private.
    """

    def __init__(self, opened: Mapping[str, PartitionData], present: Tensor | None = None) -> None:
        """Read the partitions.

        Args:
            opened: data by partition.
            present: which records count, shape (records,), bool; None: all.

        Raises:
            Malformed: for what one record cannot change.
        """
        self._parts = [read_records(data, ref) for ref, data in opened.items()]
        counts = [count_records(targets, "targets") for _, targets in self._parts]
        self._kept = torch.ones(sum(counts), dtype=torch.bool) if present is None else present
        self.records = int(self._kept.sum())

    def values(self, column: str) -> Values:
        """The numbers of one column, shape (records,), float64; what is no finite number is NaN, or infinite.

        Raises:
            Malformed: for a column that the records do not have.
        """
        named = _COLUMN.fullmatch(column)
        if named is None:
            raise Malformed(column, "is no column: write it as 'inputs[3]' or 'inputs.age'")
        part, name, place = named.groups()
        parts = [_one(tree[part == "targets"], name, place, column) for tree in self._parts]
        whole: Values = torch.cat(parts)[self._kept].numpy()
        return whole


def _one(tree: TensorTree, name: str | None, place: str | None, column: str) -> Tensor:
    array: Any = tree
    if isinstance(tree, Mapping):
        array = tree.get(name) if name is not None else None
    elif name is not None:
        array = None
    if not isinstance(array, Tensor):
        raise Malformed(column, "is no array of these records")
    rows = array.reshape(len(array), -1)
    if place is None and rows.shape[1] != 1:
        raise Malformed(column, f"has {rows.shape[1]} numbers a record: name one, as '{column}[0]'")
    if int(place or 0) >= rows.shape[1]:
        raise Malformed(column, f"is not among the {rows.shape[1]} numbers of a record")
    return rows[:, int(place or 0)].to(torch.float64)
