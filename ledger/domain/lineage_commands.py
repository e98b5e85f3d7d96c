"""The bodies of lineage commands: what has become of organisations, and what one has learnt from another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Final

from ledger.wire.canonical_json import INTEGER_MAX
from ledger.wire.field_types import Did, Name, Positive, between, distinct
from ledger.wire.records import Record

BODIES_MAX: Final = 64
"""Organisations that one lineage command names."""
Organisations = Annotated[tuple[Did, ...], distinct(BODIES_MAX)]
Several = Annotated[tuple[Did, ...], distinct(BODIES_MAX, 2)]


class Join(Record, frozen=True):
    """Organisations become one, by a merger or an acquisition: it knows all that they knew."""

    organisation: Did

    if TYPE_CHECKING:

        @property
        def parents(self) -> tuple[str, ...]:
            """Who becomes part of it."""

        @property
        def proposed(self) -> bool | None:
            """Whether it is asked for beforehand, and may be denied; else it is a fact."""


class Merge(Join, frozen=True):
    """A merger, or one that is only ``proposed``."""

    parents: Organisations
    proposed: bool | None = None


class Acquire(Join, frozen=True):
    """One organisation takes over others."""

    acquired: Organisations
    proposed: ClassVar = False

    @property
    def parents(self) -> tuple[str, ...]:
        """As those of a merger."""
        return self.acquired


class Collude(Record, frozen=True):
    """Organisations found to have shared what they know since ``effective`` (ms)."""

    organisations: Several
    effective: Annotated[int, between(0, INTEGER_MAX)]


class Split(Record, frozen=True):
    """The child leaves the organisation, or is founded out of it, and keeps all that it knew."""

    organisation: Did
    child: Did


class Transfer(Record, frozen=True):
    """The model of a charge handed over; ``giver`` is who had it, the charge's author unless said."""

    charge: Name
    recipient: Did
    giver: Did | None = None


class Publish(Record, frozen=True):
    """The model of a charge made public by ``giver``, the charge's author unless said."""

    charge: Name
    giver: Did | None = None


class Declare(Record, frozen=True):
    """A coalition: organisations that together stay under a cap of ε at each partition's δ."""

    members: Several
    epsilon: Positive


LineageBody = Merge | Acquire | Collude | Split | Transfer | Publish | Declare
BODIES: Final[dict[str, type[LineageBody]]] = {
    "merger": Merge,
    "acquisition": Acquire,
    "collusion": Collude,
    "split": Split,
    "transfer": Transfer,
    "publication": Publish,
    "coalition": Declare,
}
"""By kind of command."""
