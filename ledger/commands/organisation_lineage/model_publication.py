"""A model made public carries what its giver knew to everyone, present and to come.

Everything that it knew at that time, since no one can prove by which runs the model was chosen. Only where the run's
own charge was for everyone, it is what the author knew when it sent the charge, and the run: the *own ancestry* of the
model. The argument:

1. The plan, the data, the base models and that the model goes public were fixed by the charge's entry. Whatever the
   author chose them by, it knew then; so the model is a function of the runs before the cut, the run, and public coins.
2. The cut holds all that the author's node knew, not only the models that the charge names as its base: a learning rate
   may encode what another run has shown.
3. Withholding a model reveals something too: an author who declares a hundred models for everyone and publishes the one
   that later runs favour reveals those. The declaration is a promise to publish any result. A giver that is reported
   to collude, or is not the charge's actor, gets no benefit of it, and gives all that it knows.
4. The charge counts for everyone from the publication on, as a transfer does for its recipient; no one knows it before.
5. Organisations registered later get an arrow from the newest publication alone. A giver of everything knows all
   earlier publications; a model's own ancestry need not hold them, so the newest knows the one before it by an arrow.
"""

from __future__ import annotations

from typing import Final

from ledger.commands.command_fields import Index, NodeIndex
from ledger.commands.command_kind import CommandKind, Recorded
from ledger.commands.context import Context
from ledger.domain.charge_record import Charge
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import Organisation
from ledger.domain.organisation_graph import Arrow, NodeKind, knows
from ledger.domain.outcomes import Code
from ledger.domain.roles import SRO
from ledger.organisation_lineage.exposure import EMPTY_SINCE_MS, count_missing
from ledger.organisation_lineage.graph_edits import LineageEdit
from ledger.wire.field_types import Did, Name
from ledger.wire.records import Record


class Publish(Record, frozen=True):
    """The model of a charge made public by ``giver``, by default the charge's author."""

    charge: Name
    giver: Did | None = None


class Published(Record, frozen=True):
    """The giver of a public model, as the entry records it; ``before``, if its arrow is cut there and not now."""

    giver: Did
    node: NodeIndex
    before: Index | None = None


def decide(context: Context[Publish]) -> Decision:
    """Decide a report of a publication."""
    facts, body = context.facts, context.body
    reporter, charge = context.require_role(), context.charge(body.charge)
    giver = find_giver(context, body.giver, charge, reporter)
    public, declared = facts.publication, charge.is_meant_for_everyone
    arrow = brought_by(context, giver, charge, declared=declared)
    known = public is not None and not count_missing(facts, public, arrow, context.index)
    repeated = public is not None and arrow in facts.nodes[public].parents
    if known and (repeated or context.now < EMPTY_SINCE_MS):
        what = f"all that {giver.did} knows" if not declared else f"all that charge {charge.id} rests on"
        raise Rejected(Code.CONFLICT, f"{what} is public already", "body.charge")
    whole = arrow == Arrow(giver.node, context.index)
    return context.permit(Published(giver.did, arrow.node, None if whole else arrow.before))


def brought_by(context: Context[Record], giver: Organisation, charge: Charge, *, declared: bool) -> Arrow:
    """The knowledge in a model: its own ancestry, if its charge declared the recipients; else all its giver knows."""
    # A colluder that was reported later knew more at its request than its own node shows.
    colluded = any(context.facts.nodes[node].kind is NodeKind.COLLUSION for _, node in giver.moves)
    if declared and giver.did == charge.actor and not colluded:
        return Arrow(charge.author, charge.index + 1)
    return Arrow(giver.node, context.index)


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


def draw(edit: LineageEdit, entry: Recorded[Publish]) -> None:
    """Add a public node that every lineage knows, and every organisation registered later.

    Its giver knows what was published before, so that a new organisation needs an arrow from the newest alone; a model
    that brings its own ancestry alone gets an arrow from the publication before it.
    """
    recorded, last = entry.fixed(Published), edit.facts.publication
    edit.add_node(NodeKind.PUBLIC, recorded.giver)
    edit.add_edge(recorded.node, edit.index, edit.index if recorded.before is None else recorded.before)
    if recorded.before is not None and last is not None:
        edit.add_edge(last, edit.index, None)
    for node in sorted({organisation.node for organisation in edit.facts.organisations.values()}):
        edit.add_edge(edit.index, node, None)


PUBLICATION: Final = CommandKind(
    "publication", Publish, decide, (SRO,), "/v1/publications", edit=draw, recorded=Published, binds_all=True
)
