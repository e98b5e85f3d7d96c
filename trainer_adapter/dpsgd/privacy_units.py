"""Privacy units: what two neighbouring partitions differ in, and which records are clipped together.

For the unit ``record`` every record is a unit of its own. For the unit ``user`` all records of one user are clipped
together, as one sum of gradients, and only the first few of them train: how many is a public number fixed before
training. Which records those are depends on the user's own alone, so that adding or removing a user leaves everyone
else's as they were.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_spec import RECORDS_PER_UNIT_MAX


@dataclass(frozen=True, slots=True)
class Units:
    """The places of each unit's records.

    Attributes:
        places: shape (units, records per unit), int64; 0 where ``valid`` is false.
        valid: which of these hold a record, shape (units, records per unit).
    """

    places: Tensor
    valid: Tensor

    def __len__(self) -> int:
        """How many units the partition has."""
        return len(self.places)


def of_records(records: int) -> Units:
    """Every record a unit of its own."""
    return Units(torch.arange(records)[:, None], torch.ones((records, 1), dtype=torch.bool))


def of_users(users: Tensor, records: int, records_per_user_max: int) -> Units:
    """Every user a unit, with the first records of theirs in the partition's order, and at most so many.

    Args:
        users: whose each record is, shape (records,), any integers.

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
    return Units(places, valid)
