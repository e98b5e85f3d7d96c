"""Policy decisions on releases: data keys to an attested clean room, trained models out of it."""

from __future__ import annotations

from typing import Final

from ledger.commands.governance.model_opening import MODEL_OPENING, OpenModel
from ledger.commands.governance.release_notice import RELEASE_NOTICE, Announce
from ledger.commands.runs.key_release import KEY_RELEASE, ReleaseKey
from ledger.commands.runs.model_release import MODEL_RELEASE, ReleaseModel
from ledger.domain.facts import Charge, Facts
from ledger.domain.gate import Request, Verdict
from ledger.domain.outcomes import ChargeState
from policy.attestation.verification import Expected, verify
from policy.checks.field_readers import HOUR_MS
from policy.checks.findings import Findings
from policy.decisions.charges import check_consumer, check_contract_in_force, check_not_revoked
from policy.decisions.documents_in_force import Binding, binding, read_contract
from policy.decisions.request import on
from policy.documents import LEVEL_SEALED


def key_release(request: Request, body: ReleaseKey, facts: Facts) -> Verdict:
    """Decide a key release: a pending charge, its own clean room, attested under every partition's policy."""
    findings = Findings()
    charge = _charge(findings, body.charge, facts)
    if charge is None:
        return findings.verdict()
    contract = facts.contracts[charge.contract]
    check_contract_in_force(findings, contract, read_contract(facts.documents[charge.contract]), facts, request.now)
    findings.equal("charge_not_pending", "state", charge.state.value, ChargeState.PENDING.value)
    findings.not_after("deadline_passed", ("now", request.now), ("deadline", charge.deadline))
    findings.equal("key_not_clean_room", "key_id", request.command.key_id, charge.key_id)
    bound = _bindings(findings, charge, facts, request.now)
    expected = Expected(body.nonce, charge.id, charge.plan, charge.key_id, charge.sealing, charge.pipeline)
    _check_attested(findings, bound, facts.documents.get(body.evidence), expected, request.now)
    return findings.verdict()


def model_opening(request: Request, body: OpenModel, facts: Facts) -> Verdict:
    """Decide the opening of a sealed model: an attested clean room, and a contract in force."""
    findings = Findings()
    charge = _charge(findings, body.charge, facts)
    if charge is None:
        return findings.verdict()
    newest = facts.contracts[facts.contract_heads[facts.contracts[charge.contract].id]]
    document = read_contract(facts.documents[newest.document])
    check_contract_in_force(findings, newest, document, facts, request.now)
    check_consumer(findings, request.command.actor, newest, document, facts)
    findings.equal("charge_not_posted", "state", charge.state.value, ChargeState.POSTED.value)
    bound = _bindings(findings, charge, facts, request.now)
    expected = Expected(
        body.nonce, charge.id, charge.plan, body.clean_room.signing.thumbprint, body.clean_room.sealing.x
    )
    _check_attested(findings, bound, facts.documents.get(body.evidence), expected, request.now)
    return findings.verdict()


def _check_attested(
    findings: Findings, bound: dict[str, Binding], token: bytes | None, expected: Expected, now: int
) -> None:
    # Once for each policy, not for each partition: an entry has room for 65,535 bytes.
    for policy in dict.fromkeys(binds.policy for binds in bound.values()):
        findings.checks += verify(token, policy.attestation, expected, now, policy.source)


def release_notice(request: Request, body: Announce, facts: Facts) -> Verdict:
    """Decide a release notice: the clean room announces a model before it requests its release."""
    findings = Findings()
    charge = _charge(findings, body.charge, facts)
    if charge is not None:
        findings.equal("key_not_clean_room", "key_id", request.command.key_id, charge.key_id)
    return findings.verdict()


def model_release(request: Request, body: ReleaseModel, facts: Facts) -> Verdict:
    """Decide a model release: allowed by every partition's policy, announced in time, and never at Level 2."""
    findings = Findings()
    charge = _charge(findings, body.charge, facts)
    if charge is None:
        return findings.verdict()
    findings.equal("key_not_clean_room", "key_id", request.command.key_id, charge.key_id)
    _check_not_revoked(findings, charge, facts)
    bound = _bindings(findings, charge, facts, request.now)
    for ref, binds in bound.items():
        _check_leaves(findings, ref, binds)
    _check_announced(findings, body, charge, bound, request.now)
    return findings.verdict()


def _check_not_revoked(findings: Findings, charge: Charge, facts: Facts) -> None:
    """Check the contract: a provider that objects to a notice revokes it; a contract that ended blocks no release."""
    newest = facts.contracts[facts.contract_heads[facts.contracts[charge.contract].id]]
    check_not_revoked(findings, newest, read_contract(facts.documents[newest.document]).source)


def _check_announced(
    findings: Findings, body: ReleaseModel, charge: Charge, bound: dict[str, Binding], now: int
) -> None:
    """Check that the model was announced long enough before, and is watermarked where a policy requires it."""
    announced = dict(charge.notices).get(body.model)
    findings.check("release_not_announced", announced is not None, f"model {body.model[:16]}", "announced")
    for policy in dict.fromkeys(binds.policy for binds in bound.values()):
        if announced is not None:
            earliest = "the end of the notice period", announced + policy.notice_hours * HOUR_MS
            findings.not_after("release_too_soon", earliest, ("now", now), policy.source)
        if policy.watermark:
            findings.check("watermark_missing", body.watermark is not None, "its watermark", "named", policy.source)


def check_transfer_allowed(findings: Findings, charge: Charge, facts: Facts, now: int) -> None:
    """Check a model transfer reported by its holder: only a model that may leave its clean room."""
    for ref, binds in _bindings(findings, charge, facts, now).items():
        _check_leaves(findings, ref, binds)


def _check_leaves(findings: Findings, ref: str, binds: Binding) -> None:
    allowed = binds.policy.model_release
    findings.check("model_not_released", allowed, f"release of models of {ref}", "allowed", binds.policy.source)
    below = LEVEL_SEALED - 1
    findings.count_at_most("level_seals_model", f"Level of {ref}", binds.level, below, binds.level_source)


def _charge(findings: Findings, name: str, facts: Facts) -> Charge | None:
    charge = facts.charges.get(name)
    findings.check("charge_unknown", charge is not None, f"charge {name}", "on record")
    return charge


def _bindings(findings: Findings, charge: Charge, facts: Facts, now: int) -> dict[str, Binding]:
    bound = {}
    for ref in charge.partitions:
        binds = binding(facts, facts.partitions[ref], now)
        findings.check("policy_missing", binds is not None, ref, "under a policy in force")
        if binds:
            bound[ref] = binds
    return bound


VERDICTS: Final = (
    on(KEY_RELEASE, key_release),
    on(MODEL_OPENING, model_opening),
    on(RELEASE_NOTICE, release_notice),
    on(MODEL_RELEASE, model_release),
)
"""By kind of command."""
