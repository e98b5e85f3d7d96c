"""Group privacy of a charge: how many of a plan's own units one privacy unit of a partition covers."""

from __future__ import annotations

from ledger.mechanisms.run_plan import RECORD, RunPlan
from ledger.wire.malformed import Malformed


def group_of(plan: RunPlan, unit: str, records: int, joined: int | None = None) -> int:
    """How many of a plan's own units change together with one privacy unit of a partition: what it is priced for.

    A run over records is seen by a whole user as by a group. One that draws and clips users sees each once (one
    contribution of at most the clipping norm is there or not); of records it promises nothing, since a record less in
    a user's clipped sum may move it by twice the norm.

    Args:
        unit: of the partition; ``records`` of it that one unit holds at most.
        joined: the most after joins, if the charge states it.

    Raises:
        Malformed: for a plan over users on a partition whose unit is the record.
    """
    if plan.unit == RECORD:
        return max(records, joined or 1)
    if plan.unit != unit:
        raise Malformed("unit", f"is {plan.unit}: no price holds where the partition's unit is the {unit}")
    return joined or 1
