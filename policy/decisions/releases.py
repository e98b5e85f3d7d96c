"""What leaves: a data key to an attested clean room, a trained model out of it."""

from __future__ import annotations

from ledger.domain.commands import ReleaseKey, ReleaseModel
from ledger.domain.facts import Charge, Facts
from ledger.domain.gate import Request, Verdict
from ledger.domain.governance_commands import Announce, OpenModel
from ledger.domain.outcomes import ChargeState
from policy.attestation.verification import Expected, verify
from policy.checks.field_readers import HOUR_MS
from policy.checks.findings import Findings
from policy.decisions.charges import contract_in_force, of_consumer
from policy.decisions.documents_in_force import Binding, binding, read_contract
from policy.decisions.request import body_of
from policy.documents import LEVEL_SEALED


def key_release(request: Request, facts: Facts) -> Verdict:
    """The data keys of a pending charge, for its own clean room, attested under every partition's policy."""
    body, findings = body_of(request, ReleaseKey), Findings()
    charge = _charge(findings, body.charge, facts)
    if charge is None:
        return findings.verdict()
    contract = facts.contracts[charge.contract]
    contract_in_force(findings, contract, read_contract(facts.documents[charge.contract]), facts, request.now)
    findings.equal("charge_not_pending", "state", charge.state.value, ChargeState.PENDING.value)
    findings.not_after("deadline_passed", ("now", request.now), ("deadline", charge.deadline))
    findings.equal("key_not_clean_room", "key_id", request.command.key_id, charge.key_id)
    bound = _bindings(findings, charge, facts, request.now)
    expected = Expected(body.nonce, charge.id, charge.plan, charge.key_id, charge.sealing, charge.pipeline)
    _attested(findings, bound, facts.documents.get(body.evidence), expected, request.now)
    return findings.verdict()


def model_opening(request: Request, facts: Facts) -> Verdict:
    """A sealed model opened in a clean room attested under every partition's policy, while its contract is in force."""
    body, findings = body_of(request, OpenModel), Findings()
    charge = _charge(findings, body.charge, facts)
    if charge is None:
        return findings.verdict()
    newest = facts.contracts[facts.contract_heads[facts.contracts[charge.contract].id]]
    document = read_contract(facts.documents[newest.document])
    contract_in_force(findings, newest, document, facts, request.now)
    of_consumer(findings, request.command.actor, newest, document, facts)
    findings.equal("charge_not_posted", "state", charge.state.value, ChargeState.POSTED.value)
    bound = _bindings(findings, charge, facts, request.now)
    expected = Expected(body.nonce, charge.id, charge.plan, body.signing.thumbprint, body.sealing.x)
    _attested(findings, bound, facts.documents.get(body.evidence), expected, request.now)
    return findings.verdict()


def _attested(findings: Findings, bound: dict[str, Binding], token: bytes | None, expected: Expected, now: int) -> None:
    # Once for each policy, not for each partition: an entry has room for 65,535 bytes.
    for policy in dict.fromkeys(binds.policy for binds in bound.values()):
        findings.checks += verify(token, policy.attestation, expected, now, policy.source)


def release_notice(request: Request, facts: Facts) -> Verdict:
    """Which model is to leave, told by its clean room before it asks."""
    body, findings = body_of(request, Announce), Findings()
    charge = _charge(findings, body.charge, facts)
    if charge is not None:
        findings.equal("key_not_clean_room", "key_id", request.command.key_id, charge.key_id)
    return findings.verdict()


def model_release(request: Request, facts: Facts) -> Verdict:
    """A model out of its clean room: where every partition's policy lets it, and never at Level 2."""
    body, findings = body_of(request, ReleaseModel), Findings()
    charge = _charge(findings, body.charge, facts)
    if charge is None:
        return findings.verdict()
    findings.equal("key_not_clean_room", "key_id", request.command.key_id, charge.key_id)
    _not_revoked(findings, charge, facts)
    bound = _bindings(findings, charge, facts, request.now)
    for ref, binds in bound.items():
        _may_leave(findings, ref, binds)
    _told_before(findings, body, charge, bound, request.now)
    return findings.verdict()


def _not_revoked(findings: Findings, charge: Charge, facts: Facts) -> None:
    """A provider that was told and objects revokes the contract, and the model stays; its end alone keeps none."""
    newest = facts.contracts[facts.contract_heads[facts.contracts[charge.contract].id]]
    source = read_contract(facts.documents[newest.document]).source
    findings.that("contract_revoked", not newest.revoked, f"{'' if newest.revoked else 'not '}revoked by a TDP", source)


def _told_before(findings: Findings, body: ReleaseModel, charge: Charge, bound: dict[str, Binding], now: int) -> None:
    """The providers were told, long enough before; and the model is marked where a policy asks for it."""
    told = dict(charge.notices).get(body.model)
    findings.says("release_not_announced", told is not None, f"model {body.model[:16]}", "announced")
    for policy in dict.fromkeys(binds.policy for binds in bound.values()):
        if told is not None:
            earliest = "announced, and the notice", told + policy.notice_hours * HOUR_MS
            findings.not_after("release_too_soon", earliest, ("now", now), policy.source)
        if policy.watermark:
            findings.says("watermark_missing", body.watermark is not None, "its watermark", "named", policy.source)


def transfer_allowed(findings: Findings, charge: Charge, facts: Facts, now: int) -> None:
    """A model handed over by its holder's own word: only where it may leave its clean room."""
    for ref, binds in _bindings(findings, charge, facts, now).items():
        _may_leave(findings, ref, binds)


def _may_leave(findings: Findings, ref: str, binds: Binding) -> None:
    allowed = binds.policy.model_release
    findings.says("model_not_released", allowed, f"release of models of {ref}", "allowed", binds.policy.source)
    below = LEVEL_SEALED - 1
    findings.count_at_most("level_seals_model", f"Level of {ref}", binds.level, below, binds.level_source)


def _charge(findings: Findings, name: str, facts: Facts) -> Charge | None:
    charge = facts.charges.get(name)
    findings.says("charge_unknown", charge is not None, f"charge {name}", "on record")
    return charge


def _bindings(findings: Findings, charge: Charge, facts: Facts, now: int) -> dict[str, Binding]:
    bound = {}
    for ref in charge.partitions:
        binds = binding(facts, facts.partitions[ref], now)
        findings.says("policy_missing", binds is not None, ref, "under a policy in force")
        if binds:
            bound[ref] = binds
    return bound
