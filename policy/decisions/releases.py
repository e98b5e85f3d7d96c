"""Policy decisions on releases: data keys to an attested clean room, trained models out of it."""

from __future__ import annotations

from typing import Final

from ledger.commands.governance.model_opening import MODEL_OPENING, OpenModel
from ledger.commands.governance.model_release_notice import RELEASE_NOTICE, Announce
from ledger.commands.runs.audit_report import ACCUSATIONS, AUDIT_REPORT, ReportAudit, accusations, is_frozen
from ledger.commands.runs.key_release import KEY_RELEASE, ReleaseKey
from ledger.commands.runs.model_release import MODEL_RELEASE, ReleaseModel
from ledger.commands.runs.run_generation import RUN_GENERATION, TakeGeneration
from ledger.commands.runs.settlement import POST, Post
from ledger.commands.runs.step_lease import STEP_LEASE, LeaseSteps
from ledger.commands.runs.step_refund import RETURNING, returned_steps
from ledger.domain.charge_record import Charge
from ledger.domain.facts import Contract
from ledger.domain.gate import REFUNDS
from ledger.domain.organisation_graph import changed_since
from ledger.domain.outcomes import ChargeState
from ledger.domain.partition_ranges import in_words
from ledger.wire.field_types import TIME_MAX
from policy.attestation.verification import VMPL_CHECK, VMPL_SINCE_MS, Expected, verify
from policy.checks.field_readers import HOUR_MS
from policy.decisions.charges import check_consumer, check_contract_in_force, check_not_revoked
from policy.decisions.contract_waivers import check_waivers
from policy.decisions.documents_in_force import Binding, bindings, caps_of, read_contract
from policy.decisions.request import Case, on
from policy.documents import LEVEL_SEALED, ContractDocument

ONE_MODEL_SINCE_MS: Final = 1_796_083_200_000
"""2026-12-01: replay accepts that an earlier program let several models of one run go, where its post named none."""

FROZEN_OPENINGS_SINCE_MS: Final = 1_797_292_800_000
"""2026-12-15: replay accepts that an earlier program opened sealed models of a pipeline that audits had disproved."""


OVER_CAP_RELEASES_SINCE_MS: Final = 1_797_292_800_000
"""2026-12-15: replay accepts that an earlier program released keys to organisations that lineage had put over a cap."""


def key_release(case: Case, body: ReleaseKey) -> None:
    """Decide a key release: a pending charge, its own clean room, attested under every partition's policy.

    Where the organisation has come to know others' runs since the charge, the caps that bind it now are stated too.
    """
    charge = _charge(case, body.charge)
    if charge is None:
        return
    _check_run(case, body, charge)
    node = case.facts.organisations[charge.actor].node
    if changed_since(case.facts.nodes, node, charge.index) and not case.is_accepted(OVER_CAP_RELEASES_SINCE_MS):
        partitions = [case.facts.partitions[ref] for ref in charge.partitions]
        document = read_contract(case.facts.documents[charge.contract])
        bound = zip(partitions, bindings(case.facts, partitions, case.now), strict=True)
        case.caps = [(one.ref, caps_of(one.epsilon, binds, document)) for one, binds in bound if binds is not None]


def _check_run(case: Case, body: ReleaseKey, charge: Charge) -> None:
    contract = case.facts.contracts[charge.contract]
    document = read_contract(case.facts.documents[charge.contract])
    check_contract_in_force(case, contract, document)
    check_waivers(case, document, charge.pipeline)
    case.equal("charge_not_pending", "state", charge.state.value, ChargeState.PENDING.value)
    case.not_after("deadline_passed", ("now", case.now), ("deadline", charge.deadline))
    _check_clean_room(case, charge)
    expected = Expected(body.nonce, charge.id, charge.plan, charge.key_id, charge.sealing, charge.pipeline)
    _check_attested(case, _bindings(case, charge), body.evidence, expected)


def run_generation(case: Case, body: TakeGeneration) -> None:
    """Decide a new generation of a run: like the release of its keys, on new evidence."""
    charge = _charge(case, body.charge)
    if charge is not None:
        _check_run(case, ReleaseKey(body.charge, body.evidence, body.nonce), charge)


def step_lease(case: Case, body: LeaseSteps) -> None:
    """Decide a lease of steps: by the run's own clean room, until its deadline, as long as the contract is in force."""
    charge = _charge(case, body.charge)
    if charge is None:
        return
    check_not_revoked(case, *_newest(case, charge))
    case.not_after("deadline_passed", ("now", case.now), ("deadline", charge.deadline))
    _check_clean_room(case, charge)


def model_opening(case: Case, body: OpenModel) -> None:
    """Decide the opening of a sealed model: an attested clean room, and a contract in force."""
    charge = _charge(case, body.charge)
    if charge is None:
        return
    newest, document = _newest(case, charge)
    check_contract_in_force(case, newest, document)
    check_consumer(case, newest, document)
    case.equal("charge_not_posted", "state", charge.state.value, ChargeState.POSTED.value)
    keys = body.clean_room
    expected = Expected(body.nonce, charge.id, charge.plan, keys.signing.thumbprint, keys.sealing.x)
    _check_attested(case, _bindings(case, charge), body.evidence, expected)
    if not case.is_accepted(FROZEN_OPENINGS_SINCE_MS):
        _check_not_frozen(case, charge)


def _newest(case: Case, charge: Charge) -> tuple[Contract, ContractDocument]:
    """The newest version of the contract of a charge."""
    newest = case.facts.contracts[case.facts.contract_heads[case.facts.contracts[charge.contract].id]]
    return newest, read_contract(case.facts.documents[newest.document])


def _check_attested(case: Case, bound: dict[str, Binding], evidence: str, expected: Expected) -> None:
    token = case.facts.documents.get(evidence)
    # Once for each policy, not for each partition: an entry has room for 65,535 bytes.
    for policy in dict.fromkeys(binds.policy for binds in bound.values()):
        checks = verify(token, policy.attestation, expected, case.now, policy.source)
        before = case.is_accepted(VMPL_SINCE_MS)
        case.checks += (check for check in checks if not (before and check.code == VMPL_CHECK))


def post(case: Case, body: Post) -> None:
    """Decide a settlement for what ran: every partition's policy decides on leased steps that were not taken."""
    charge = _charge(case, body.charge)
    if charge is None:
        return
    if charge.leases is None or not returned_steps(charge.leases, body):
        case.until = TIME_MAX
        return
    bound = _bindings(case, charge)
    for policy in dict.fromkeys(binds.policy for binds in bound.values()):
        allowed = policy.refund in RETURNING and (policy.refund == "stated" or body.evidence is not None)
        needs = "stated, or attested with evidence"
        case.check(
            "refund_not_allowed",
            allowed,
            f"refund of leased steps: {policy.refund or REFUNDS[0]}",
            needs,
            policy.source,
        )
    if body.evidence is not None and body.nonce is not None:
        expected = Expected(body.nonce, charge.id, charge.plan, charge.key_id, charge.sealing, charge.pipeline)
        _check_attested(case, bound, body.evidence, expected)


def release_notice(case: Case, body: Announce) -> None:
    """Decide a release notice: the clean room announces a model before it requests its release."""
    charge = _charge(case, body.charge)
    if charge is not None:
        _check_clean_room(case, charge)


def model_release(case: Case, body: ReleaseModel) -> None:
    """Decide a model release: allowed by every partition's policy, announced in time, and never at Level 2."""
    charge = _charge(case, body.charge)
    if charge is None:
        return
    _check_clean_room(case, charge)
    # A provider that objects to a notice revokes the contract; a contract that ended blocks no release.
    check_not_revoked(case, *_newest(case, charge))
    bound = _bindings(case, charge)
    for ref, binds in bound.items():
        _check_leaves(case, ref, binds)
    _check_announced(case, body, charge, bound)
    _check_not_frozen(case, charge)


def _check_not_frozen(case: Case, charge: Charge) -> None:
    """Check that audits did not disprove, time after time, what runs of its pipeline are charged for."""
    pipeline = charge.pipeline
    if pipeline is None or all(audit.pipeline != pipeline for audit in case.facts.audits.values()):
        return
    row = accusations(case.facts.audits.values(), pipeline)
    text = f"{row} audits of pipeline {pipeline[:16]} in a row disprove its claim; {ACCUSATIONS} freeze its releases"
    case.add("pipeline_frozen", not is_frozen(row), text)


def audit_report(case: Case, body: ReportAudit) -> None:
    """Decide an audit report: by the audited run's own clean room."""
    charge = _charge(case, body.charge)
    if charge is not None:
        _check_clean_room(case, charge)


def _check_announced(case: Case, body: ReleaseModel, charge: Charge, bound: dict[str, Binding]) -> None:
    """Check that the model was announced long enough before, and is watermarked where a policy requires it."""
    notice = dict(charge.notices).get(body.model)
    announced = case.exists("release_not_announced", notice, f"model {body.model[:16]}", "announced")
    if announced is not None and charge.model is None and not case.is_accepted(ONE_MODEL_SINCE_MS):
        # Its post names no model: the first notice does, so that one run has one.
        first = charge.notices[0][0]
        case.check("model_not_first", body.model == first, f"model {body.model[:16]}", "the first that was announced")
    for policy in dict.fromkeys(binds.policy for binds in bound.values()):
        if announced is not None:
            earliest = "the end of the notice period", announced + policy.notice_hours * HOUR_MS
            case.not_after("release_too_soon", earliest, ("now", case.now), policy.source)
        if policy.watermark:
            case.exists("watermark_missing", body.watermark, "its watermark", "named", policy.source)


def check_transfer_allowed(case: Case, charge: Charge) -> None:
    """Check a model transfer reported by its holder: only a model that may leave its clean room."""
    for ref, binds in _bindings(case, charge).items():
        _check_leaves(case, ref, binds)


def _check_leaves(case: Case, ref: str, binds: Binding) -> None:
    allowed = binds.policy.model_release
    case.check("model_not_released", allowed, f"release of models of {ref}", "allowed", binds.policy.source)
    case.count_at_most("level_seals_model", f"Level of {ref}", binds.level, LEVEL_SEALED - 1, binds.level_source)


def _check_clean_room(case: Case, charge: Charge) -> None:
    case.equal("key_not_clean_room", "key_id", case.request.command.key_id, charge.key_id)


def _charge(case: Case, name: str) -> Charge | None:
    return case.exists("charge_unknown", case.facts.charges.get(name), f"charge {name}")


def _bindings(case: Case, charge: Charge) -> dict[str, Binding]:
    """The terms of each partition, by its name; for a charge with ranges, by the text for all with the same terms."""
    facts, bound = case.facts, dict[str, Binding]()
    by_partition = bindings(facts, [facts.partitions[ref] for ref in charge.partitions], case.now)
    in_force = dict(zip(charge.partitions, by_partition, strict=True))
    if charge.groups is not None:
        by_binding: dict[int, tuple[Binding | None, list[str]]] = {}
        for ref, binds in in_force.items():
            by_binding.setdefault(id(binds), (binds, []))[1].append(ref)
        in_force = {in_words(charge.partitions, refs): binds for binds, refs in by_binding.values()}
    for name, binds in in_force.items():
        if terms := case.exists("policy_missing", binds, name, "under a policy in force"):
            bound[name] = terms
    return bound


VERDICTS: Final = (
    on(KEY_RELEASE, key_release),
    on(RUN_GENERATION, run_generation),
    on(STEP_LEASE, step_lease),
    on(POST, post),
    on(AUDIT_REPORT, audit_report),
    on(MODEL_OPENING, model_opening),
    on(RELEASE_NOTICE, release_notice),
    on(MODEL_RELEASE, model_release),
)
"""By kind of command."""
