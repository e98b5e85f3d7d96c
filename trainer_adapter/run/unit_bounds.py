"""How many records of one user count in a run over records, where the unit of a partition is the user.

Such a run is charged for groups: of the records that one unit of the partition has at most, as the partition says
(``unit_records_max``), or the job, if that is more. A user with more records would lose more than was charged, so the
records beyond are left out, or the run ends. Where records name no users, that one has no more is their provider's
word. Where the unit is the record each one counts, whatever its ``users`` say: if only the first of a user's did, the
second would take its place when it is not there, and one record would move an answer by twice what is charged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from client.dataset_files.sealed_records import SealedRecords
from client.dataset_files.stored_partition import PartitionData
from client.service.registry_reads import unit_records
from client.service.service import Service
from ledger.mechanisms.run_plan import RECORD, USER, group_of
from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.run.declared_records import archive_arrays

USERS: Final = "users"
"""The array that says whose each record is."""


def unit_bounds(opened: Mapping[str, PartitionData], assignment: Assignment, service: Service) -> dict[str, int]:
    """The greatest number of records of one user that the charge is for, by partition.

    Of partitions whose unit is not the record and whose records name their users; of a plan over users, none: there
    the engine clips each user's records together.

    Raises:
        Refused, Unreachable.
    """
    bounds = dict[str, int]()
    if assignment.plan.unit != RECORD:
        return bounds
    for ref in (ref for ref, data in opened.items() if users_of(data) is not None):
        partition = service.partition(ref)
        if partition["unit"] != RECORD:
            records = unit_records(partition)
            bounds[ref] = group_of(assignment.plan, USER, records, assignment.unit_records_max)
    return bounds


def check_unit_bounds(opened: Mapping[str, PartitionData], bounds: Mapping[str, int]) -> None:
    """Hold each partition to its bound. Raises: Malformed, naming the partition, and no user."""
    for ref, most in bounds.items():
        users = users_of(opened[ref])
        if users is not None and np.unique(users, return_counts=True)[1].max(initial=0) > most:
            has = f"has more than {most} {'record' if most == 1 else 'records'} of one user"
            raise Malformed(ref, f"{has}, which the run is charged for: state unit_records_max in the job")


def users_of(data: PartitionData) -> NDArray[Any] | None:
    """Whose each record is, shape (records,); None where the records do not name their users."""
    arrays = dict(data.arrays((USERS,))) if isinstance(data, SealedRecords) else archive_arrays(data, USERS)
    return arrays.get(USERS)
