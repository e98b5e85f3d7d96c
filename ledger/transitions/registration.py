"""Deciding what enters the registry: organisations, documents, partitions and retirements."""

from __future__ import annotations

from fractions import Fraction

from ledger.crypto import detached_jws
from ledger.domain.commands import EnterDocument, OpenPartition, RegisterOrganisation, Retire
from ledger.domain.facts import Facts
from ledger.domain.gate import Caps, Gate, Request
from ledger.domain.outcomes import Code
from ledger.filters import RULES, NoRoom, Opening, Rule, choose_rule
from ledger.mechanisms.decomposition import group_privacy
from ledger.mechanisms.mechanism import Mechanism
from ledger.mechanisms.plan import RECORD, group_of
from ledger.mechanisms.price_proofs import NotPriced
from ledger.transitions.guards import Decision, PendingCommand, Rejected, require_permit, require_role
from ledger.transitions.pricing import ComputedPrices, prices_of
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import DELTA_MIN, DELTA_ONE, EPSILON_MAX, format_number
from ledger.wire.malformed import Malformed


def organisation(facts: Facts, pending: PendingCommand, now: int, index: int, gate: Gate) -> Decision:
    """An SRO registers an organisation; the first entry of a book is its SRO, registering itself."""
    body = pending.body
    assert isinstance(body, RegisterOrganisation)
    if facts.organisations:
        require_role(facts, pending, "SRO")
    elif index != 0 or pending.command.actor != body.organisation or "SRO" not in body.roles:
        raise Rejected(Code.NOT_AUTHORISED, "the first entry of a book is an SRO that registers itself", "actor")
    if body.organisation in facts.organisations:
        raise Rejected(Code.CONFLICT, f"{body.organisation} is registered already", "body.organisation")
    if body.key.thumbprint in facts.keys:
        raise Rejected(Code.CONFLICT, "this key is registered already", "body.key")
    try:
        detached_jws.verify(body.possession, body.claim(), body.key)
    except Malformed as fault:
        raise Rejected(Code.SIGNATURE_INVALID, f"possession of the key: {fault}", "body.possession") from None
    require_permit(gate, Request(pending.command, body, now), facts)
    return Decision(Code.PERMITTED)


def document(facts: Facts, pending: PendingCommand, now: int, index: int, gate: Gate) -> Decision:
    """A policy, recommendation, dataset or contract enters with the signatures it needs; the gate reads inside it."""
    del index
    body = pending.body
    assert isinstance(body, EnterDocument)
    require_role(facts, pending, *_DOCUMENT_ROLES[pending.command.kind])
    request = Request(pending.command, body, now, signers=signers(facts, body))
    verdict = require_permit(gate, request, facts)
    if verdict.header is None:
        raise AssertionError("a gate that permits a document tells its header")
    return Decision(Code.PERMITTED, derived={"header": verdict.header.to_json()})


_DOCUMENT_ROLES = {"policy": ("SRO",), "recommendation": ("TSO",), "dataset": ("TDP",), "contract": ("TDP", "TDC")}


def signers(facts: Facts, body: EnterDocument) -> tuple[str, ...]:
    """The signers of a document: owners of the keys whose signatures verify. Raises: Rejected, if any does not."""
    data = facts.documents.get(body.document)
    if data is None:
        raise Rejected(Code.NOT_FOUND, f"no document {body.document} was stored", "body.document")
    owners = []
    for place, name in enumerate(body.signatures):
        where = f"body.signatures[{place}]"
        stored = facts.documents.get(name)
        if stored is None:
            raise Rejected(Code.NOT_FOUND, f"no signature {name} was stored", where)
        try:
            owners.append(_signer(facts, data, stored.decode("ascii")))
        except (Malformed, UnicodeDecodeError) as fault:
            raise Rejected(Code.SIGNATURE_INVALID, str(fault), where) from None
    return tuple(owners)


def _signer(facts: Facts, data: bytes, signature: str) -> str:
    key = facts.keys.get(detached_jws.key_id_of(signature))
    if key is None or key.charge is not None:
        raise Malformed("signature", "was made with a key that no organisation has registered")
    detached_jws.verify(signature, data, key.public)
    return key.owner


def partition(facts: Facts, pending: PendingCommand, now: int, index: int, gate: Gate) -> Decision:
    """A partition opens with a budget and a rule that is good for every cap its policy names."""
    del index
    body, caps, rule = opening(facts, pending, now, gate)
    prices = prices_of(pending)
    named = dict.fromkeys((body.epsilon, caps.lineage))
    try:
        terms: c.Object = {"caps": [prices.capacity(rule, one).to_json() for one in named], "terms": rule.to_json()}
    except NoRoom as closed:
        raise _closed(body, closed) from None
    except Malformed as fault:
        raise fault.under("body") from None
    return Decision(Code.PERMITTED, derived=terms)


def opening(facts: Facts, pending: PendingCommand, now: int, gate: Gate) -> tuple[OpenPartition, Caps, Rule]:
    """Everything that is decided of an opening but whether its caps have room. Raises: Malformed, Rejected."""
    body = pending.body
    assert isinstance(body, OpenPartition)
    require_role(facts, pending, "TDP")
    epsilon, delta = body.epsilon, body.delta
    if not 0 < epsilon <= EPSILON_MAX:
        raise Rejected(
            Code.MALFORMED, f"body.epsilon: must be greater than 0 and at most {EPSILON_MAX}", "body.epsilon"
        )
    if delta and not DELTA_MIN <= delta < 1:
        raise Rejected(Code.MALFORMED, "body.delta: must be 0, or at least 1e-11 and less than 1", "body.delta")
    if body.ref in facts.partitions:
        raise Rejected(Code.CONFLICT, f"{body.ref} was opened before; new records open a partition of a new name")
    _own_data_key(facts, body)
    verdict = require_permit(gate, Request(pending.command, body, now), facts)
    caps = dict(verdict.caps)[body.ref]
    return body, caps, _rule_for(body, caps, prices_of(pending))


def _own_data_key(facts: Facts, body: OpenPartition) -> None:
    """One data key, one partition: released for one, it would open the other without a charge."""
    for other in facts.partitions.values():
        if (other.provider, other.data_key) == (body.provider, body.data_key):
            detail = f"body.data_key: {body.data_key} opens {other.ref} already; a new partition needs a key of its own"
            raise Rejected(Code.CONFLICT, detail, "body.data_key")


def _rule_for(body: OpenPartition, caps: Caps, prices: ComputedPrices) -> Rule:
    """The rule that a new partition gets under these caps. Raises: Malformed, Rejected."""
    epsilon, delta = body.epsilon, body.delta
    load = _load(body)
    slack = body.slack or Fraction(0)
    if slack and slack >= delta:
        raise Rejected(Code.MALFORMED, "body.slack: must be less than δ", "body.slack")
    try:
        opening = Opening(delta, (epsilon, caps.lineage), load, body.relation, int(slack * DELTA_ONE))
        return prices.number(choose_rule, body.rule, opening)
    except NoRoom as closed:
        raise _closed(body, closed) from None
    except NotPriced as fault:
        raise Rejected(Code.MALFORMED, f"body.load: {fault}", "body.load") from None
    except Malformed as fault:
        raise fault.under("body") from None


def _load(body: OpenPartition) -> Mechanism | None:
    """The declared load as one privacy unit sees it. Raises: Rejected."""
    plan = body.load
    if RULES[body.rule].per_unit and body.unit not in {RECORD, plan.unit if plan else RECORD}:
        detail = f"body.unit: must be 'record' for the rule {body.rule}, or what its load clips by"
        raise Rejected(Code.MALFORMED, detail, "body.unit")
    if plan is None:
        return None
    try:
        return group_privacy(group_of(plan, body.unit, body.unit_records), plan.mechanism(plan.steps))
    except Malformed as fault:
        raise fault.under("body.load") from None


def _closed(body: OpenPartition, closed: NoRoom) -> Rejected:
    return Rejected(Code.MALFORMED, f"body.epsilon: at a δ of {format_number(body.delta)} {closed}", "body.epsilon")


def retirement(facts: Facts, pending: PendingCommand, now: int, index: int, gate: Gate) -> Decision:
    """A partition takes nothing new from here on."""
    del index
    body = pending.body
    assert isinstance(body, Retire)
    require_role(facts, pending, "TDP")
    found = facts.partitions.get(body.partition)
    if found is None:
        raise Rejected(Code.NOT_FOUND, f"there is no partition {body.partition}", "body.partition")
    if found.retired:
        raise Rejected(Code.CONFLICT, f"{body.partition} is retired already", "body.partition")
    require_permit(gate, Request(pending.command, body, now), facts)
    return Decision(Code.PERMITTED)
