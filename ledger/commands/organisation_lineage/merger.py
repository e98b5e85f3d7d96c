"""A merger or an acquisition joins what its parents know; one that is only proposed may be denied."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final

from ledger.commands.command_fields import Organisations, Parents
from ledger.commands.command_kind import CommandKind, Recorded
from ledger.commands.context import Context
from ledger.domain.decision import Decision, Rejected
from ledger.domain.outcomes import Code
from ledger.domain.roles import SRO
from ledger.organisation_lineage.graph_edits import LineageEdit, merge
from ledger.wire.field_types import Did
from ledger.wire.records import Record


class Join(Record, frozen=True):
    """Organisations become one, by a merger or an acquisition: it knows all that they knew."""

    organisation: Did

    if TYPE_CHECKING:

        @property
        def parents(self) -> tuple[str, ...]:
            """The organisations that become part of it."""

        @property
        def proposed(self) -> bool | None:
            """Whether it is requested beforehand, and may be denied; else it is a fact."""


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
        """The organisations that are taken over."""
        return self.acquired


def _decide(field: str) -> Callable[[Context[Join]], Decision]:
    """Decide with the parents in a field of the body."""

    def decide(context: Context[Join]) -> Decision:
        into = context.organisation(context.body.organisation, "organisation")
        parents = context.organisations(context.body.parents, field)
        nodes = {parent.node for parent in (into, *parents)}
        if len(nodes) == 1:
            raise Rejected(Code.CONFLICT, "these organisations are one lineage already", "body.parents")
        return context.permit(Parents(tuple(sorted(nodes))))

    return decide


def draw(edit: LineageEdit, entry: Recorded[Join]) -> None:
    """Move all organisations at the parents' nodes to one new node."""
    merge(edit, entry.body.organisation, entry.fixed(Parents).parents)


MERGER: Final = CommandKind(
    "merger", Merge, _decide("parents"), (SRO,), "/v1/mergers", edit=draw, recorded=Parents, binds_all=True
)
ACQUISITION: Final = CommandKind(
    "acquisition", Acquire, _decide("acquired"), (SRO,), "/v1/acquisitions", edit=draw, recorded=Parents, binds_all=True
)
