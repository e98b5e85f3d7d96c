"""Deciding what is entered of the lineage: mergers, collusion, splits, transfers, publications, coalitions.

What has happened is a fact and is recorded, whatever it does to accounts. What nobody would learn anything from is
in conflict with what stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ledger.domain.commands import MakeCharge
from ledger.domain.facts import Charge, Facts, Organisation
from ledger.domain.gate import Gate, Request
from ledger.domain.lineage_commands import Collude, Declare, Join, Publish, Split, Transfer
from ledger.domain.lineage_graph import Arrow, NodeKind, descendants, knows
from ledger.domain.outcomes import ChargeState, Code
from ledger.lineage.exposure import count_missing
from ledger.lineage.graph_edits import occupied
from ledger.transitions.guards import Decision, PendingCommand, Rejected, require_permit, require_role

_PARENTS: Final = {"merger": "parents", "acquisition": "acquired"}


def merger(facts: Facts, pending: PendingCommand, now: int, index: int, gate: Gate) -> Decision:
    """A merger or an acquisition joins what its parents know; one that is only proposed may be denied."""
    del index
    body = pending.body
    assert isinstance(body, Join)
    require_role(facts, pending, "SRO")
    into = _organisation(facts, body.organisation, "organisation")
    parents = _organisations(facts, body.parents, _PARENTS[pending.command.kind])
    nodes = {one.node for one in (into, *parents)}
    if len(nodes) == 1:
        raise Rejected(Code.CONFLICT, "these organisations are one lineage already", "body.parents")
    require_permit(gate, Request(pending.command, body, now), facts)
    return Decision(Code.PERMITTED, derived={"parents": [*sorted(nodes)]})


def collusion(facts: Facts, pending: PendingCommand, now: int, index: int, gate: Gate) -> Decision:
    """Found later, with the date since when: who descends from the colluders of that date is one lineage now."""
    del index
    body = pending.body
    assert isinstance(body, Collude)
    require_role(facts, pending, "SRO")
    found = _organisations(facts, body.organisations, "organisations")
    if body.effective > now:
        raise Rejected(Code.MALFORMED, "body.effective: must not lie after now", "body.effective")
    stood = {one.stood(body.effective) for one in found}
    parents = occupied(facts, descendants(facts.nodes, stood, body.effective))
    if len(stood) == 1:
        raise Rejected(Code.CONFLICT, "these organisations were one lineage then", "body.organisations")
    require_permit(gate, Request(pending.command, body, now), facts)
    return Decision(Code.PERMITTED, derived={"parents": [*parents]})


def split(facts: Facts, pending: PendingCommand, now: int, index: int, gate: Gate) -> Decision:
    """The child keeps all that the organisation knew until now, and goes its own way."""
    body = pending.body
    assert isinstance(body, Split)
    require_role(facts, pending, "SRO")
    parent = _organisation(facts, body.organisation, "organisation")
    child = _organisation(facts, body.child, "child")
    if parent.did == child.did:
        raise Rejected(Code.MALFORMED, "body.child: must be another organisation", "body.child")
    arrow = Arrow(parent.node, index)
    if parent.node != child.node and not count_missing(facts, facts.nodes, child.node, arrow, index):
        raise Rejected(Code.CONFLICT, f"{child.did} knows all that {parent.did} knows", "body.child")
    require_permit(gate, Request(pending.command, body, now), facts)
    return Decision(Code.PERMITTED, derived={"parents": [parent.node, child.node]})


def transfer(facts: Facts, pending: PendingCommand, now: int, index: int, gate: Gate) -> Decision:
    """A model handed over, with all that its giver knew: no one can say by which runs it was chosen and tuned.

    A seed may be the output of another run, the model the best of a hundred. Only where the run's own charge named
    the recipient was all fixed before anything was seen, and the model carries its own ancestry alone.
    """
    body = pending.body
    assert isinstance(body, Transfer)
    reporter, found = require_role(facts, pending, "SRO", "TDC"), _charge(facts, body.charge)
    recipient = _organisation(facts, body.recipient, "recipient")
    giver = _giver(facts, body, found, reporter)
    if "SRO" not in reporter.roles and found.state is not ChargeState.POSTED:
        detail = f"charge {found.id} is {found.state}: a model is handed over after its run was posted"
        raise Rejected(Code.CONFLICT, detail, "body.charge")
    # Whose collusion was found knew more when it asked than its own node says.
    colluded = any(facts.nodes[node].kind is NodeKind.COLLUSION for _, node in giver.moves)
    planned = giver.did == found.actor and recipient.did in found.recipients and not colluded
    arrow = Arrow(found.author, found.index + 1) if planned else Arrow(giver.node, index)
    if not count_missing(facts, facts.nodes, recipient.node, arrow, index):
        raise Rejected(Code.CONFLICT, f"{recipient.did} knows all that this would bring", "body.recipient")
    require_permit(gate, Request(pending.command, body, now), facts)
    return Decision(Code.PERMITTED, derived={"before": arrow.before, "giver": giver.did, "node": arrow.node})


def publication(facts: Facts, pending: PendingCommand, now: int, index: int, gate: Gate) -> Decision:
    """A model made public carries all that its giver knew to everyone, present and to come."""
    body = pending.body
    assert isinstance(body, Publish)
    reporter, found = require_role(facts, pending, "SRO"), _charge(facts, body.charge)
    giver = _giver(facts, body, found, reporter)
    public, arrow = facts.publication, Arrow(giver.node, index)
    if public is not None and not count_missing(facts, facts.nodes, public, arrow, index):
        raise Rejected(Code.CONFLICT, f"all that {giver.did} knows is public already", "body.charge")
    require_permit(gate, Request(pending.command, body, now), facts)
    return Decision(Code.PERMITTED, derived={"giver": giver.did, "node": giver.node})


def coalition(facts: Facts, pending: PendingCommand, now: int, index: int, gate: Gate) -> Decision:
    """Organisations that from now on stay under a cap together."""
    del index
    body = pending.body
    assert isinstance(body, Declare)
    require_role(facts, pending, "SRO")
    members = _organisations(facts, body.members, "members")
    require_permit(gate, Request(pending.command, body, now), facts)
    return Decision(Code.PERMITTED, derived={"parents": [*sorted({one.node for one in members})]})


def check_named(facts: Facts, body: MakeCharge, author: int) -> None:
    """Who a charge names to receive its model is registered; what its run starts from is known. Raises: Rejected."""
    for place, did in enumerate(body.recipients):
        _organisation(facts, did, f"recipients[{place}]")
    for place, name in enumerate(body.base):
        found = facts.charges.get(name)
        where = f"body.base[{place}]"
        if found is None:
            raise Rejected(Code.NOT_FOUND, f"there is no charge {name}", where)
        if not knows(facts.nodes, author, found.author, found.index):
            detail = f"this lineage does not know charge {name}: enter the transfer of its model first"
            raise Rejected(Code.CONFLICT, detail, where)


def _organisation(facts: Facts, did: str, field: str) -> Organisation:
    found = facts.organisations.get(did)
    if found is None:
        raise Rejected(Code.NOT_FOUND, f"{did} is not registered", f"body.{field}")
    return found


def _organisations(facts: Facts, dids: Sequence[str], field: str) -> list[Organisation]:
    return [_organisation(facts, did, f"{field}[{place}]") for place, did in enumerate(dids)]


def _charge(facts: Facts, name: str) -> Charge:
    found = facts.charges.get(name)
    if found is None:
        raise Rejected(Code.NOT_FOUND, f"there is no charge {name}", "body.charge")
    return found


def _giver(facts: Facts, body: Transfer | Publish, found: Charge, reporter: Organisation) -> Organisation:
    """The giver of the model: the charge's actor unless another is named; a TDC gives for itself."""
    by_sro = "SRO" in reporter.roles
    giver = _organisation(facts, body.giver or (found.actor if by_sro else reporter.did), "giver")
    if not by_sro and giver.did != reporter.did:
        raise Rejected(Code.NOT_AUTHORISED, f"{reporter.did} can hand over for itself alone", "body.giver")
    if not knows(facts.nodes, giver.node, found.author, found.index):
        detail = f"{giver.did} does not know charge {found.id}: enter how it came to it first"
        raise Rejected(Code.CONFLICT if by_sro else Code.NOT_AUTHORISED, detail, "body.giver")
    return giver
