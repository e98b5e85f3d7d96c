"""Decide governance commands: a contract revoked, an account reset by decree, a model announced and opened."""

from __future__ import annotations

from typing import Final

from ledger.domain.facts import Charge, Facts
from ledger.domain.gate import Gate, Request
from ledger.domain.governance_commands import Announce, Decree, OpenModel, Revoke
from ledger.domain.lineage_graph import knows
from ledger.domain.outcomes import ChargeState, Code
from ledger.transitions.guards import Decision, PendingCommand, Rejected, require_permit, require_role

NOTICES_MAX: Final = 16
"""Models that one charge announces."""


def revocation(facts: Facts, pending: PendingCommand, now: int, index: int, gate: Gate) -> Decision:
    """Any TDP of a contract ends its newest version; what is pending settles as ever."""
    del index
    body = pending.body
    assert isinstance(body, Revoke)
    require_role(facts, pending, "TDP")
    found = facts.contracts.get(body.contract)
    if found is None:
        raise Rejected(Code.NOT_FOUND, f"there is no contract {body.contract}", "body.contract")
    if found.revoked:
        raise Rejected(Code.CONFLICT, f"version {found.version} of {found.id} is revoked already", "body.contract")
    require_permit(gate, Request(pending.command, body, now), facts)
    return Decision(Code.PERMITTED)


def decree(facts: Facts, pending: PendingCommand, now: int, index: int, gate: Gate) -> Decision:
    """An SRO's order that an account begins anew: the entry says from what."""
    del index
    body = pending.body
    assert isinstance(body, Decree)
    require_role(facts, pending, "SRO")
    if body.partition not in facts.partitions:
        raise Rejected(Code.NOT_FOUND, f"there is no partition {body.partition}", "body.partition")
    account = facts.accounts.get((body.partition, body.holder))
    if account is None or account.posted.empty:
        detail = f"the account {body.holder} of {body.partition} has nothing settled that could be reset"
        raise Rejected(Code.CONFLICT, detail, "body.holder")
    require_permit(gate, Request(pending.command, body, now), facts)
    return Decision(Code.PERMITTED, derived={"forgiven": account.posted.to_json()})


def release_notice(facts: Facts, pending: PendingCommand, now: int, index: int, gate: Gate) -> Decision:
    """Notify the providers which model is to leave its clean room, before its release is requested."""
    del index
    body = pending.body
    assert isinstance(body, Announce)
    found = _settled(facts, body.charge)
    if pending.command.key_id != found.key_id:
        raise Rejected(Code.NOT_AUTHORISED, f"only the clean room of charge {found.id} may ask for this", "key_id")
    if body.model in {model for model, _ in found.notices}:
        raise Rejected(Code.CONFLICT, f"the model {body.model} is announced already", "body.model")
    if len(found.notices) >= NOTICES_MAX:
        raise Rejected(Code.CONFLICT, f"charge {found.id} has announced {NOTICES_MAX} models", "body.model")
    require_permit(gate, Request(pending.command, body, now), facts)
    return Decision(Code.PERMITTED)


def model_opening(facts: Facts, pending: PendingCommand, now: int, index: int, gate: Gate) -> Decision:
    """A sealed model is opened in a clean room of its own: from this entry on its key counts as released."""
    del index
    body = pending.body
    assert isinstance(body, OpenModel)
    asker = require_role(facts, pending, "TDC")
    found = _settled(facts, body.charge)
    if not knows(facts.nodes, asker.node, found.author, found.index):
        raise Rejected(Code.NOT_AUTHORISED, f"{asker.did} does not know charge {found.id}", "actor")
    if body.clean_room.signing.thumbprint in facts.keys:
        detail = "the clean room's signing key is in use: one clean room, one opening"
        raise Rejected(Code.CONFLICT, detail, "body.clean_room.signing")
    if body.evidence not in facts.documents:
        raise Rejected(Code.NOT_FOUND, f"no evidence {body.evidence} was stored", "body.evidence")
    require_permit(gate, Request(pending.command, body, now), facts)
    return Decision(Code.PERMITTED)


def _settled(facts: Facts, name: str) -> Charge:
    found = facts.charges.get(name)
    if found is None:
        raise Rejected(Code.NOT_FOUND, f"there is no charge {name}", "body.charge")
    if found.state is not ChargeState.POSTED or found.key_release is None:
        raise Rejected(Code.CONFLICT, f"charge {found.id} is {found.state}: its run was not posted", "body.charge")
    return found
