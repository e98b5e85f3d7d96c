"""A model handed over, with all that its giver knew: no one can prove by which runs it was chosen and tuned.

A seed may be the output of another run, the model the best of a hundred. Only where the run's own charge named
the recipient, or everyone, was all fixed before anything was seen, and the model carries its own ancestry alone.

All that the giver knows then counts on the recipient's accounts, for good. So a giver that reports its own transfer
needs the recipient's agreement, or it could block a competitor at no cost: by charges that never begin. An SRO needs
none, as it reports what has happened.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from ledger.commands.command_fields import Count, Index, NodeIndex
from ledger.commands.command_kind import CommandKind, Recorded
from ledger.commands.context import Context
from ledger.commands.organisation_lineage.model_publication import brought_by, find_giver
from ledger.commands.registration.document import signer_of
from ledger.crypto.detached_jws import SIGNATURE_BYTES_MAX
from ledger.domain.charge_record import Charge
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import Organisation
from ledger.domain.organisation_graph import Arrow, NodeKind
from ledger.domain.outcomes import ChargeState, Code
from ledger.domain.roles import SRO, TDC
from ledger.organisation_lineage.exposure import EMPTY_SINCE_MS, count_brought, count_missing, known_spans
from ledger.organisation_lineage.graph_edits import LineageEdit
from ledger.wire.field_types import Did, Name, constant, text
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, write

AGAIN_MS: Final = 86_400_000
"""How long a transfer that brings nothing is refused after one from the same giver to the same recipient: each adds a
node to the graph."""

AGREED_SINCE_MS: Final = 1_797_292_800_000
"""From this time on (15 December 2026) a TDC hands over a model only of a run that took a step, and only with the
recipient's agreement. Before it a transfer needs neither, as entries of before have neither."""
_SIGN: Final = "have it sign, or have an SRO enter the transfer"
_SIGN_AGAIN: Final = "have the recipient sign this transfer again, or have an SRO enter it"


class TransferClaim(Record, frozen=True):
    """The claim that the recipient of a model signs: what it takes, from whom, and at most how many runs with it."""

    charge: Name
    giver: Did
    recipient: Did
    runs: Count
    use: Literal["transfer_agreement"] = constant("transfer_agreement")


class Agreement(Record, frozen=True):
    """The recipient's agreement to a transfer: its detached JWS over the :class:`TransferClaim`.

    It holds for a model that brings at most so many runs, all that the giver knows. No known run is ever unlearned, so
    once the giver knows more, by charges of its own or from others, an old agreement brings nothing of it. A time until
    which it holds would not do: within it the giver could charge more runs. Nor would a size of the log: the state has
    no sums as of every size.
    """

    signature: Annotated[str, text(SIGNATURE_BYTES_MAX)]
    runs: Count


class Transfer(Record, frozen=True):
    """The model of a charge handed over by ``giver``, by default the charge's author.

    ``agreement`` is the recipient's, which a TDC's report needs; one that an SRO adds is checked too.
    """

    charge: Name
    recipient: Did
    giver: Did | None = None
    agreement: Agreement | None = None


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
    by_sro = SRO in reporter.roles
    if not by_sro:
        _require_model(context, charge)
    arrow = brought_by(context, giver, charge, declared=charge.is_meant_for(recipient.did))
    if body.agreement is not None:
        claim = TransferClaim(charge.id, giver.did, recipient.did, body.agreement.runs)
        _require_agreed(context, body.agreement, claim)
        if count_brought(facts, arrow, context.index) > claim.runs:
            detail = f"this brings more than {claim.runs} runs, to which {recipient.did} agreed: {_SIGN_AGAIN}"
            raise Rejected(Code.CONFLICT, detail, "body.agreement.runs")
    elif not by_sro and giver.node != recipient.node and context.now >= AGREED_SINCE_MS:
        detail = f"{recipient.did} has not agreed to this transfer{_describe_own(context, giver, arrow)}: {_SIGN}"
        raise Rejected(Code.SIGNATURE_MISSING, detail, "body.agreement")
    if not count_missing(facts, recipient.node, arrow, context.index):
        _require_new(context, giver, recipient, by_sro=by_sro)
    return context.permit(Handover(arrow.cut, giver.did, arrow.node))


def _require_model(context: Context[Transfer], charge: Charge) -> None:
    """Check that a run has a model to hand over: that it was posted, with a step that ran. Raises: Rejected."""
    if charge.state is not ChargeState.POSTED:
        detail = f"charge {charge.id} is {charge.state}: a model is handed over after its run was posted"
        raise Rejected(Code.CONFLICT, detail, "body.charge")
    if not charge.steps_posted and context.now >= AGREED_SINCE_MS:
        detail = f"charge {charge.id} was posted for 0 steps: its run has no model to hand over"
        raise Rejected(Code.CONFLICT, detail, "body.charge")


def _require_agreed(context: Context[Transfer], agreement: Agreement, claim: TransferClaim) -> None:
    """Check that the recipient has signed a claim, by a key in force. Raises: Rejected."""
    field = "body.agreement.signature"
    try:
        signer = signer_of(context.facts, write(claim), agreement.signature, context.now)
    except Malformed as error:
        raise Rejected(Code.SIGNATURE_INVALID, f"agreement.{error}: {_SIGN_AGAIN}", field) from None
    if signer != claim.recipient:
        raise Rejected(Code.SIGNATURE_INVALID, f"the agreement is signed by {signer}: {_SIGN_AGAIN}", field)


def _describe_own(context: Context[Transfer], giver: Organisation, arrow: Arrow) -> str:
    """How many runs a transfer brings, where all are the giver's own: how many others have made is not its to read."""
    spans = known_spans(context.facts.nodes, arrow.node, context.index, arrow.before)
    return f", which brings {context.facts.runs(spans)} runs" if {one.author for one in spans} == {giver.index} else ""


def _require_new(context: Context[Transfer], giver: Organisation, recipient: Organisation, *, by_sro: bool) -> None:
    """Check that a transfer that brings nothing is to another lineage, the first from this giver within a day.

    A TDC reports one such transfer alone, so that by one agreement it adds no node a day.

    Raises:
        Rejected.
    """
    known, nodes = f"{recipient.did} knows all that this would bring", context.facts.nodes
    if giver.node == recipient.node or context.now < EMPTY_SINCE_MS:
        raise Rejected(Code.CONFLICT, known, "body.recipient")
    for model in (nodes[one.node] for one in nodes[recipient.node].parents):
        if model.kind is not NodeKind.MODEL or model.organisation != giver.did:
            continue
        again = f"{known}, and entry {model.index} is of the same giver"
        if not by_sro:
            raise Rejected(Code.CONFLICT, f"{again}: an SRO may enter it again", "body.recipient")
        if model.time > context.now - AGAIN_MS:
            raise Rejected(Code.CONFLICT, f"{again}: enter it a day after that", "body.recipient")


def draw(edit: LineageEdit, entry: Recorded[Transfer]) -> None:
    """Add a node of the model, which knows what the arrow brings; the recipient's node knows it too."""
    recorded = entry.fixed(Handover)
    edit.add_node(NodeKind.MODEL, recorded.giver)
    edit.add_edge(recorded.node, edit.index, recorded.before)
    edit.add_edge(edit.index, edit.facts.organisations[entry.body.recipient].node, None)


TRANSFER: Final = CommandKind("transfer", Transfer, decide, (SRO, TDC), "/v1/transfers", edit=draw, recorded=Handover)
