"""An organisation splits: the child keeps all that the organisation knew until now, and goes its own way."""

from __future__ import annotations

from typing import Final

from ledger.commands.command_fields import Parents
from ledger.commands.command_kind import CommandKind, Recorded
from ledger.commands.context import Context
from ledger.domain.decision import Decision, Rejected
from ledger.domain.organisation_graph import Arrow, NodeKind
from ledger.domain.outcomes import Code
from ledger.domain.roles import SRO
from ledger.organisation_lineage.exposure import EMPTY_SINCE_MS, count_missing
from ledger.organisation_lineage.graph_edits import LineageEdit
from ledger.wire.field_types import Did
from ledger.wire.records import Record


class Split(Record, frozen=True):
    """The child leaves the organisation, or is founded out of it, and keeps all that it knew."""

    organisation: Did
    child: Did


def decide(context: Context[Split]) -> Decision:
    """Decide a report of a split."""
    facts = context.facts
    parent = context.organisation(context.body.organisation, "organisation")
    child = context.organisation(context.body.child, "child")
    if parent.did == child.did:
        raise Rejected(Code.MALFORMED, "body.child: must be another organisation", "body.child")
    arrow = Arrow(parent.node, context.index)
    brings = parent.node == child.node or count_missing(facts, child.node, arrow, context.index)
    if not brings and context.now < EMPTY_SINCE_MS:
        raise Rejected(Code.CONFLICT, f"{child.did} knows all that {parent.did} knows", "body.child")
    return context.permit(Parents((parent.node, child.node)))


def draw(edit: LineageEdit, entry: Recorded[Split]) -> None:
    """Move the child to a node that knows all that both knew.

    From the same node it moves alone: the group is divided. From another node all its members move. A coalition that
    follows the organisation follows the child too: else what its members know would be used outside its cap.
    """
    child = entry.body.child
    parent, own = entry.fixed(Parents).parents
    edit.add_node(NodeKind.ORGANISATION, child)
    edit.merge_into((child,) if parent == own else edit.facts.nodes[own].members, sorted({parent, own}))
    edit.extend_coalitions(child, entry.body.organisation)


SPLIT: Final = CommandKind("split", Split, decide, (SRO,), "/v1/splits", edit=draw, recorded=Parents, binds_all=True)
