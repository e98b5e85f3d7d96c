"""The base of every kind of plan: its mechanism, its steps, its digest, and its privacy unit beside a partition's."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, Self

from ledger.mechanisms.decomposition import first_steps
from ledger.mechanisms.mechanism import Mechanism
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from ledger.wire.records import to_json, write

RECORD: Final = "record"
USER: Final = "user"


class RunPlan:
    """What a run does: the base of every kind of plan."""

    if TYPE_CHECKING:

        @property
        def whole(self) -> Mechanism:
            """All its steps."""

        @property
        def steps(self) -> int:
            """How many steps there are, each settled by itself."""

        @property
        def unit(self) -> str:
            """The unit that is drawn and clipped."""

    def mechanism(self, steps: int) -> Mechanism:
        """The mechanism of the first ``steps`` steps, for the accountant. Raises: Malformed, for no steps."""
        mechanism = self.whole if steps == self.steps else first_steps(self.whole, steps)
        if mechanism is None:
            raise Malformed("steps", "must be at least 1")
        return mechanism

    def __hash__(self) -> int:
        """The hash of the digest: prices are cached by plan."""
        return hash(self.digest)

    def to_json(self) -> c.Object:
        """The tagged form."""
        tagged: c.Object = to_json(self)
        return tagged

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical bytes."""
        return c.digest(write(self))

    @classmethod
    def of(cls, plan: RunPlan) -> Self:
        """The plan, checked to be of this kind. Raises: Malformed, for another kind."""
        if not isinstance(plan, cls):
            raise Malformed("kind", "is that of another kind of plan")
        return plan


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
