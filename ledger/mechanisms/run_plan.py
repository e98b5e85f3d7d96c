"""The base of every kind of plan: its mechanism, its steps, its privacy unit and its digest."""

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
