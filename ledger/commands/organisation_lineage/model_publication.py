"""A model made public carries all that its giver knew to everyone, present and to come."""

from __future__ import annotations

from typing import Final

from ledger.commands.command_fields import NodeIndex
from ledger.commands.command_kind import Change, CommandKind
from ledger.commands.context import Context
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import Charge, Organisation
from ledger.domain.organisation_graph import Arrow, NodeKind, knows
from ledger.domain.outcomes import Code
from ledger.domain.roles import SRO
from ledger.organisation_lineage.exposure import count_missing
from ledger.wire.field_types import Did, Name
from ledger.wire.records import Record


class Publish(Record, frozen=True):
    """The model of a charge made public by ``giver``, the charge's author unless said."""

    charge: Name
    giver: Did | None = None


class Published(Record, frozen=True):
    """Who made the model public, as the entry records it."""

    giver: Did
    node: NodeIndex


def decide(context: Context[Publish]) -> Decision:
    """Decide a report of a publication."""
    facts, body = context.facts, context.body
    reporter, charge = context.require_role(), context.charge(body.charge)
    giver = find_giver(context, body.giver, charge, reporter)
    public, arrow = facts.publication, Arrow(giver.node, context.index)
    if public is not None and not count_missing(facts, public, arrow, context.index):
        raise Rejected(Code.CONFLICT, f"all that {giver.did} knows is public already", "body.charge")
    return context.permit(Published(giver.did, giver.node))


def find_giver(context: Context[Record], named: str | None, charge: Charge, reporter: Organisation) -> Organisation:
    """The giver of a model: the charge's actor unless another is named; a TDC gives for itself. Raises: Rejected."""
    by_sro = SRO in reporter.roles
    giver = context.organisation(named or (charge.actor if by_sro else reporter.did), "giver")
    if not by_sro and giver.did != reporter.did:
        raise Rejected(Code.NOT_AUTHORISED, f"{reporter.did} can hand over for itself alone", "body.giver")
    if not knows(context.facts.nodes, giver.node, charge.author, charge.index):
        detail = f"{giver.did} does not know charge {charge.id}: enter how it came to it first"
        raise Rejected(Code.CONFLICT if by_sro else Code.NOT_AUTHORISED, detail, "body.giver")
    return giver


def apply(change: Change[Publish]) -> None:
    """Add a public node that every lineage knows, and every organisation registered later.

    Its giver knows what was published before, so that a new organisation needs an arrow from the newest alone.
    """
    edit, recorded = change.lineage_edit(), change.recorded(Published)
    edit.add_node(NodeKind.PUBLIC, recorded.giver)
    edit.add_edge(recorded.node, edit.index, edit.index)
    for one in sorted({organisation.node for organisation in change.state.organisations.values()}):
        edit.add_edge(edit.index, one, None)
    edit.apply_to(change.state)


PUBLICATION: Final = CommandKind(
    "publication", Publish, decide, (SRO,), "/v1/publications", apply, recorded=Published, binds_all=True
)
