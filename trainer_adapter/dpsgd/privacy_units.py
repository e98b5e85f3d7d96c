"""Privacy units: what two neighbouring partitions differ in, and which records are clipped together.

For the unit ``record`` every record is a unit of its own. For the unit ``user`` all records of one user are clipped
together, as one sum of gradients, and only the first few of them train: how many is a public number fixed before
training. Which records those are depends on the user's own alone, so that adding or removing a user leaves everyone
else's as they were.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from ledger.mechanisms.plan import Plan
from ledger.mechanisms.run_plan import USER
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.poisson_sampler import Microbatch
from trainer_adapter.job.job_spec import RECORDS_PER_UNIT_MAX
from trainer_adapter.layers.dropout import Keys, dropout_keys
from trainer_adapter.layers.tensor_trees import TensorTree, count_records, map_tensors, select, tensors, tree_of
from trainer_adapter.per_sample.microbatch import Batch
from trainer_adapter.per_sample.model_checks import DUMMIES, dummies


class DrawnRecords(Protocol):
    """Records that are read when they are drawn.

    Attributes:
        prototypes: inputs (0, ...) and targets (0, ...), in the shapes and types of the records.
    """

    prototypes: tuple[TensorTree, TensorTree]

    def __len__(self) -> int:
        """How many there are."""

    def take(self, places: Tensor) -> tuple[TensorTree, TensorTree]:
        """Inputs and targets at ``places``, of shape (*places, ...), on the CPU; private."""


Records: TypeAlias = tuple[TensorTree, TensorTree] | DrawnRecords
"""Inputs (records, ...) and targets (records, ...), each a tensor or a tree of them, in memory or not."""


def of_users(users: Tensor, records: int, records_per_user_max: int) -> tuple[Tensor, Tensor]:
    """Every user a unit, with the first records of theirs in the partition's order, and at most so many.

    Args:
        users: whose each record is, shape (records,), any integers.

    Returns:
        The places of each unit's records, shape (units, records per unit), int64, and which of these hold a record, of
        the same shape; 0 where none is held.

    Raises:
        Malformed: if ``users`` does not fit the records, or the bound is out of range.
    """
    if users.dim() != 1 or users.is_floating_point() or len(users) != records:
        raise Malformed("users", f"must be one integer for each of {records} records")
    if not 1 <= records_per_user_max <= RECORDS_PER_UNIT_MAX:
        raise Malformed("records_per_user_max", f"must lie between 1 and {RECORDS_PER_UNIT_MAX}")
    _, unit = torch.unique(users.cpu(), return_inverse=True)
    count = int(unit.max()) + 1 if records else 0
    order = torch.argsort(unit, stable=True)
    starts = torch.searchsorted(unit[order], torch.arange(count))
    rank = torch.arange(records) - starts[unit[order]]
    kept = rank < records_per_user_max
    places = torch.zeros((count, records_per_user_max), dtype=torch.int64)
    valid = torch.zeros((count, records_per_user_max), dtype=torch.bool)
    places[unit[order][kept], rank[kept]] = order[kept]
    valid[unit[order][kept], rank[kept]] = True
    return places, valid


class UnitRecords:
    """The records of a partition, gathered by units into microbatches."""

    def __init__(
        self,
        plan: Plan,
        data: Records,
        users: Tensor | None,
        records_per_user_max: int,
        present: Tensor | None = None,
    ) -> None:
        """Group the records by the plan's unit.

        Args:
            present: which places hold a record, shape (records,), bool; None: all. An absent one is drawn as if it
                were a record, and adds nothing.

        Raises:
            Malformed: for users where the plan's unit is the record, the other way round, or what does not fit.
        """
        inputs, targets = data if isinstance(data, tuple) else data.prototypes
        self.data = tree_of(inputs, "inputs"), tree_of(targets, "targets")
        self._records = self.data if isinstance(data, tuple) else data
        known = count_records(self.data[0], "inputs")
        self.records = known if isinstance(data, tuple) else len(data)
        if (other := count_records(self.data[1], "targets")) != known:
            raise Malformed("data", f"has {self.records} inputs but {other} targets")
        if (users is not None) != (plan.unit == USER):
            rule = f"must be given where the plan's unit is the user, and only there: it is {plan.unit}"
            raise Malformed("users", rule)
        if users is None and records_per_user_max != 1:
            raise Malformed("records_per_user_max", "needs users: a record is one unit")
        if present is not None and (users is not None or present.shape != (self.records,)):
            raise Malformed("present", f"must say of each of {self.records} records whether it is there, without users")
        self._present = present
        if users is None:
            self._places = torch.arange(self.records)[:, None]
            self._valid = torch.ones((self.records, 1), dtype=torch.bool)
        else:
            self._places, self._valid = of_users(users, self.records, records_per_user_max)

    def __len__(self) -> int:
        """How many units the partition has."""
        return len(self._places)

    def gather(self, drawn: Microbatch, keys: Keys | None, device: torch.device) -> Batch:
        """The records of the units drawn; private. What is not drawn is a public dummy, zeros, and never a record."""
        mask, units = torch.from_numpy(drawn.mask), torch.from_numpy(drawn.indices)
        if self._present is not None:
            mask = mask & self._present[units]
        places = self._places[units]
        valid = self._valid[units] & mask[:, None]
        if isinstance(self._records, tuple):
            inputs, targets = (select(part, places.to(tensors(part)[0].device)) for part in self._records)
        else:
            inputs, targets = self._records.take(places)
        if not bool(valid.all()):
            for part in (*tensors(inputs), *tensors(targets)):
                part[~valid.to(part.device)] = 0
        batch = Batch(inputs, targets, valid, mask, dropout_keys(keys, places, valid))
        gathered: Batch = map_tensors(partial(_moved, device), batch)
        return gathered

    def public_batch(self, units: int, device: torch.device) -> Batch:
        """Dummies in the shapes of a microbatch: a few that count, the rest masked out."""
        records = self._valid.shape[1]
        inputs, targets = dummies(self.data, (units, records), device)
        mask = torch.arange(units, device=device) < DUMMIES
        valid = torch.ones((units, records), dtype=torch.bool, device=device)
        keys = torch.arange(2 * units * records, device=device).reshape(units, records, 2)
        return Batch(inputs, targets, valid, mask, keys)


def _moved(device: torch.device, part: Tensor) -> Tensor:
    """On the device; to a GPU through pinned memory, so that the next batch is read while the last one is computed."""
    if device.type != "cuda" or part.is_cuda:
        return part.to(device)
    return part.pin_memory().to(device, non_blocking=True)
