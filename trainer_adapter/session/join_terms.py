"""What a job's join demands of the partitions' terms; see :mod:`trainer_adapter.training.record_join` for why."""

from __future__ import annotations

from client.service.service import Service
from ledger.mechanisms.run_plan import RECORD
from ledger.mechanisms.statistics_plans import StagedPlan, StatisticsPlan
from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_spec import Assignment

_REFUSED = "REPLACE_ONE"


def check_join(assignment: Assignment, service: Service) -> None:
    """Hold the partitions that are joined to the join's premise, before anything is charged.

    Raises:
        Malformed: for a partition whose neighbours replace a record, or whose unit is another, or statistics of
            joined records whose plan does not say whose they are. Refused, Unreachable.
    """
    _check_tables(assignment)
    for ref in assignment.join or ():
        partition = service.partition(ref)
        if partition["relation"] == _REFUSED:
            rule = (
                f"is not for {ref}: its relation is {_REFUSED}, and a record that is replaced changes two joined ones"
            )
            raise Malformed("join", rule)
        if partition["unit"] != RECORD:
            raise Malformed("join", f"is for partitions whose unit is the record: that of {ref} is {partition['unit']}")


def _check_tables(assignment: Assignment) -> None:
    """An auditor reads off the charged plan of whose data each statistic was. Raises: Malformed."""
    plan = assignment.plan
    if not isinstance(plan, StagedPlan | StatisticsPlan):
        return
    named = [table.partition for table in plan.tables]
    if named != [*(assignment.join or ())]:
        rule = "must name the partitions of join in their order, each with its columns, and no other"
        raise Malformed("train.plan.tables", rule)
