"""Organisations that from now on stay under a cap together."""

from __future__ import annotations

from typing import Final

from ledger.commands.command_fields import Parents, Several
from ledger.commands.command_kind import CommandKind, Recorded
from ledger.commands.context import Context
from ledger.domain.decision import Decision
from ledger.domain.organisation_graph import NodeKind
from ledger.domain.roles import SRO
from ledger.organisation_lineage.graph_edits import LineageEdit
from ledger.wire.field_types import Positive
from ledger.wire.records import Record


class Declare(Record, frozen=True):
    """A coalition: organisations that together stay under a cap of ε at each partition's δ."""

    members: Several
    epsilon: Positive


def decide(context: Context[Declare]) -> Decision:
    """Decide a coalition."""
    members = context.organisations(context.body.members, "members")
    return context.permit(Parents(tuple(sorted({member.node for member in members}))))


def draw(edit: LineageEdit, entry: Recorded[Declare]) -> None:
    """Add a coalition that follows its members wherever they move."""
    body = entry.body
    edit.add_node(NodeKind.COALITION, entry.actor, body.epsilon, members=tuple(sorted(body.members)))
    for node in sorted({edit.facts.organisations[did].node for did in body.members}):
        edit.add_edge(node, edit.index, None)


COALITION: Final = CommandKind(
    "coalition",
    Declare,
    decide,
    (SRO,),
    "/v1/coalitions",
    edit=draw,
    recorded=Parents,
    binds_all=True,
    changes_prices=True,
)
