"""An audited run: DP-SGD as it is charged, with canaries beside the records, and how often they will be guessed.

    {"canaries": 2000, "guesses": 200, "kind": "audited", "training": {"kind": "dp_sgd", ...}, "v": 1}

A canary is a synthetic record. It adds to no one's loss: whatever else is in the data, a record of the partition is
sampled, clipped and hidden as it is without canaries. So the run costs what its training does. Both numbers are in
the plan, so they are fixed by an entry before there is a coin.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from ledger.mechanisms.mechanism import PoissonGaussian
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.run_plan import RECORD, RunPlan
from ledger.wire.field_types import between, constant
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record

CANARIES_MAX: Final = 100_000
GUESSES_MAX: Final = 4_096
"""The time that an audit's bound takes is in proportion to its guesses."""


class AuditedPlan(Record, RunPlan, frozen=True, dict=True, tag_field="kind", tag="audited"):
    """A DP-SGD run over records, audited.

    Attributes:
        canaries: how many coins are flipped, each for a record of its own.
        guesses: for how many of the canaries the room guesses how their coins fell.
        training: what is charged and run.
    """

    canaries: Annotated[int, between(1, CANARIES_MAX)]
    guesses: Annotated[int, between(1, GUESSES_MAX)]
    training: Plan
    v: Literal[1] = constant(1)

    __hash__ = RunPlan.__hash__

    def __post_init__(self) -> None:
        """Check the plan against its bounds. Raises: Malformed."""
        super().__post_init__()
        if self.guesses > self.canaries:
            raise Malformed("guesses", "must not be more than the canaries")
        if self.training.unit != RECORD:
            raise Malformed("training.unit", f"must be {RECORD}: a canary is a record")

    @property
    def whole(self) -> PoissonGaussian:
        """All steps of the training."""
        return self.training.whole

    @property
    def steps(self) -> int:
        """Those of the training."""
        return self.training.steps

    @property
    def unit(self) -> str:
        """That of the training."""
        return self.training.unit
