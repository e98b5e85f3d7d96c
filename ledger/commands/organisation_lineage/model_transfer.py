"""A model handed over, with all that its giver knew: no one can prove by which runs it was chosen and tuned.

A seed may be the output of another run, the model the best of a hundred. Only where the run's own charge named
the recipient, or everyone, was all fixed before anything was seen, and the model carries its own ancestry alone.
"""

from __future__ import annotations

from typing import Final

from ledger.commands.command_fields import Index, NodeIndex
from ledger.commands.command_kind import CommandKind, Recorded
from ledger.commands.context import Context
from ledger.commands.organisation_lineage.model_publication import brought_by, find_giver
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import Organisation
from ledger.domain.organisation_graph import NodeKind
from ledger.domain.outcomes import ChargeState, Code
from ledger.domain.roles import SRO, TDC
from ledger.organisation_lineage.exposure import EMPTY_SINCE_MS, count_missing
from ledger.organisation_lineage.graph_edits import LineageEdit
from ledger.wire.field_types import Did, Name
from ledger.wire.records import Record

AGAIN_MS: Final = 86_400_000
"""How long a transfer that brings nothing is refused after one from the same giver to the same recipient: a TDC reports
its own, and each adds a node to the graph."""


class Transfer(Record, frozen=True):
    """The model of a charge handed over by ``giver``, by default the charge's author."""

    charge: Name
    recipient: Did
    giver: Did | None = None


class Handover(Record, frozen=True):
    """The transferred knowledge, as the entry records it: what the giver's node knew at ``before``."""

    before: Index
    giver: Did
    node: NodeIndex


def decide(context: Context[Transfer]) -> Decision:
    """Decide a report of a transfer."""
    facts, body = context.facts, context.body
    reporter, charge = context.require_role(), context.charge(body.charge)
    recipient = context.organisation(body.recipient, "recipient")
    giver = find_giver(context, body.giver, charge, reporter)
    if SRO not in reporter.roles and charge.state is not ChargeState.POSTED:
        detail = f"charge {charge.id} is {charge.state}: a model is handed over after its run was posted"
        raise Rejected(Code.CONFLICT, detail, "body.charge")
    arrow = brought_by(context, giver, charge, declared=charge.is_meant_for(recipient.did))
    if not count_missing(facts, recipient.node, arrow, context.index):
        _require_first_today(context, giver, recipient)
    return context.permit(Handover(arrow.cut, giver.did, arrow.node))


def _require_first_today(context: Context[Transfer], giver: Organisation, recipient: Organisation) -> None:
    """Check that a transfer that brings nothing is to another lineage, the first from this giver within a day.

    Raises:
        Rejected.
    """
    known, nodes = f"{recipient.did} knows all that this would bring", context.facts.nodes
    if giver.node == recipient.node or context.now < EMPTY_SINCE_MS:
        raise Rejected(Code.CONFLICT, known, "body.recipient")
    for model in (nodes[one.node] for one in nodes[recipient.node].parents):
        given = model.kind is NodeKind.MODEL and model.organisation == giver.did
        if given and model.time > context.now - AGAIN_MS:
            detail = f"{known}, and entry {model.index} is of the same giver: enter it a day after that"
            raise Rejected(Code.CONFLICT, detail, "body.recipient")


def draw(edit: LineageEdit, entry: Recorded[Transfer]) -> None:
    """Add a node of the model, which knows what the arrow brings; the recipient's node knows it too."""
    recorded = entry.fixed(Handover)
    edit.add_node(NodeKind.MODEL, recorded.giver)
    edit.add_edge(recorded.node, edit.index, recorded.before)
    edit.add_edge(edit.index, edit.facts.organisations[entry.body.recipient].node, None)


TRANSFER: Final = CommandKind("transfer", Transfer, decide, (SRO, TDC), "/v1/transfers", edit=draw, recorded=Handover)
