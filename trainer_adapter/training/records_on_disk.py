"""Records that do not fit memory: decrypted where a step draws them, a microbatch at a time, and never written.

Which frames of a file a step reads depends on which records it drew. An observer of the accesses to the disk under the
sealed file learns of each frame (about 64 KiB of records) whether one of its records may have been drawn; nothing
of it is seen where most frames have a record in every step. Records that fit memory are read once, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from client.dataset_files.sealed_records import SealedRecords
from client.dataset_files.stored_partition import PartitionData
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.privacy_units import Records
from trainer_adapter.layers.tensor_trees import (
    TensorTree,
    concatenate,
    count_records,
    form,
    map_tensors,
    tensors,
    tree_of,
)
from trainer_adapter.training.training_records import own_records

IN_MEMORY_BYTES_MAX: Final = 1 << 26
"""Of all sealed records of a run together; beyond it each is read when it is drawn."""
Read = Callable[[Any, str], tuple[TensorTree, TensorTree]]
Seen = Callable[[Any], TensorTree]
"""What the model sees of inputs, record by record."""


class Miscounted(Malformed):
    """A reader gave another number of records than it may; how many may depend on what they hold."""


def at_most_its_own(read: Read, stated: Callable[[str], int]) -> Read:
    """A reader held to the records of the data that it is given: more would be drawn, and clipped, one by one.

    A record is charged as one. A copy of it, turned or altered, is drawn by itself and adds once more than that.

    Args:
        read: gives inputs and targets. stated: how many records a partition has, where its data are of another form.
    """

    def held(data: Any, ref: str) -> tuple[TensorTree, TensorTree]:  # noqa: ANN401 - a partition's data
        inputs, targets = _read(read, data, ref)
        own = own_records(data, ref)
        if count_records(inputs, "inputs") > (stated(ref) if own is None else own):
            rule = "is read as more records than it has: each of its records is charged as one, and may train as one"
            raise Miscounted(ref, rule)
        return inputs, targets

    return held


def records_of(
    opened: Mapping[str, PartitionData],
    read: Read,
    inputs: Seen,
    device: torch.device,
    in_memory_max: int = IN_MEMORY_BYTES_MAX,
) -> Records:
    """The records of partitions, in memory where they fit or lie in one piece.

    Args:
        opened: by reference. read: inputs and targets of some of a partition's records, and its name for errors.
        inputs: what the model sees of inputs, record by record. device: of those in memory.

    Raises:
        Malformed, OSError; what ``read`` raises.
    """
    sealed = {ref: data for ref, data in opened.items() if isinstance(data, SealedRecords)}
    if len(sealed) == len(opened) and sum(records.nbytes for records in sealed.values()) > in_memory_max:
        return RecordsOnDisk(sealed, read, inputs)
    parts = [_read(read, data, ref) for ref, data in opened.items()]
    _check_alike(list(opened), parts)
    whole = (inputs(concatenate([part for part, _ in parts])), concatenate([part for _, part in parts]))
    moved: tuple[TensorTree, TensorTree] = map_tensors(lambda tensor: tensor.to(device), whole)
    return moved


def _read(read: Read, data: Any, ref: str) -> tuple[TensorTree, TensorTree]:  # noqa: ANN401 - a partition's data
    inputs, targets = read(data, ref)
    return tree_of(inputs, "inputs"), tree_of(targets, "targets")


def _check_alike(refs: list[str], parts: list[tuple[TensorTree, TensorTree]]) -> None:
    """Else a target of one number would be repeated to the size of another partition's. Raises: Malformed."""
    for ref, moved in zip(refs, parts, strict=True):
        if form(moved) != form(parts[0]):
            raise Malformed(ref, f"must have records of the same shape as those of {refs[0]}")


class RecordsOnDisk:
    """The records of sealed files, one after the other.

    Attributes:
        prototypes: inputs (0, ...) and targets (0, ...), in the shapes and types of the records.
    """

    prototypes: tuple[TensorTree, TensorTree]

    def __init__(self, parts: Mapping[str, SealedRecords], read: Read, inputs: Seen) -> None:
        """Open every frame once: a changed byte is found before the first step. Raises: as :func:`records_of`."""
        self._parts, self._seen = list(parts.items()), inputs
        self._reader = read
        for _, part in self._parts:
            part.verify()
        self._starts = np.cumsum([0, *(len(part) for _, part in self._parts)])
        none = np.empty(0, np.int64)
        first = [self._of(number, none) for number in range(len(self._parts))]
        for number, (_, part) in enumerate(self._parts):
            # Of a reader that makes several of a record, or none, no step is begun.
            self._of(number, np.arange(min(1, len(part)), dtype=np.int64))
        _check_alike([ref for ref, _ in self._parts], first)
        self.prototypes = concatenate([inputs for inputs, _ in first]), concatenate([inputs for _, inputs in first])

    def __len__(self) -> int:
        """How many there are."""
        return int(self._starts[-1])

    def take(self, places: Tensor) -> tuple[TensorTree, TensorTree]:
        """Inputs and targets of the records at these places, of shape (*places, ...). Raises: as :func:`records_of`."""
        flat = places.flatten().numpy()
        moved = map_tensors(lambda tensor: tensor.new_empty((len(flat), *tensor.shape[1:])), self.prototypes)
        for number in range(len(self._parts)):
            here = (flat >= self._starts[number]) & (flat < self._starts[number + 1])
            if here.any():
                read = self._of(number, flat[here] - self._starts[number])
                for whole, part in zip(tensors(moved), tensors(read), strict=True):
                    whole[torch.from_numpy(here)] = part
        shaped: tuple[TensorTree, TensorTree] = map_tensors(
            lambda tensor: tensor.reshape(*places.shape, *tensor.shape[1:]), moved
        )
        return shaped

    def _of(self, number: int, places: np.ndarray[Any, np.dtype[np.int64]]) -> tuple[TensorTree, TensorTree]:
        ref, records = self._parts[number]
        inputs, targets = _read(self._reader, records.chosen(places), ref)
        if count_records(inputs, "inputs") != len(places):
            # One that is read in place of several would take all of their places.
            raise Miscounted(ref, "is read as another number of records than are drawn of it")
        return tree_of(self._seen(inputs), "inputs"), targets
