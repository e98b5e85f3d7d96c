"""The gate: the policy decision on every command, denied by default, with all checks in order.

``gate`` dispatches each kind of command to the module that decides it. An internal error denies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ledger.commands.governance.state_statement import STATEMENT, StateStatement
from ledger.commands.registration.organisation import ORGANISATION, RegisterOrganisation
from ledger.commands.runs.settlement import LAPSE, VOID, Settle
from ledger.commands.signing_keys.log_key_rotation import ROTATION_OF_LOG, RotateLogKey
from ledger.commands.signing_keys.log_key_suspension import SUSPENSION_OF_LOG, SuspendLogKey
from ledger.domain.command import LEDGER_ACTOR
from ledger.domain.facts import Facts
from ledger.domain.gate import Gate, Request, Verdict
from ledger.wire.field_types import TIME_MAX
from policy.checks.did_spelling import canonical_did
from policy.checks.findings import Findings
from policy.decisions import (
    charges,
    documents,
    governance,
    organisation_lineage,
    partition_openings,
    releases,
    signing_keys,
    stream_slices,
)
from policy.decisions.request import Case, on

ONE_SPELLING_SINCE_MS: Final = 1_797_292_800_000
"""2026-12-15: replay accepts that an earlier program registered a DID that another spelling means too."""


def gate(request: Request, facts: Facts) -> Verdict:
    """Decide a request. Never raises: an unknown kind denies, and so does an internal error."""
    decide = _VERDICTS.get(request.command.kind)
    if decide is None:
        return _denial("kind_unknown", f"no rule permits {request.command.kind[:80]!r}")
    try:
        return decide(request, facts)
    except Exception as error:  # noqa: BLE001 - whatever goes wrong in a decision, the answer is no
        return _denial("evaluation_error", f"{type(error).__name__}: {str(error)[:200]}")


def _denial(code: str, text: str) -> Verdict:
    findings = Findings()
    findings.failed(code, text)
    return findings.verdict()


def _organisation(case: Case, body: RegisterOrganisation) -> None:
    registered = case.actor in case.facts.organisations or case.actor == body.organisation
    case.check("actor_unknown", registered, case.actor, "registered, or registering itself")
    if not case.is_accepted(ONE_SPELLING_SINCE_MS):
        spelled = canonical_did(body.organisation)
        wanted = f"spelled in the one way, {spelled}" if spelled else "spelled with whole octets behind each '%'"
        case.check("did_spelling", spelled == body.organisation, body.organisation, wanted)


def _settlement(case: Case, body: Settle) -> None:
    case.exists("charge_unknown", case.facts.charges.get(body.charge), f"charge {body.charge}")
    case.until = TIME_MAX


def _book_alone(case: Case, _body: StateStatement | RotateLogKey | SuspendLogKey) -> None:
    case.check("actor_unknown", case.actor == LEDGER_ACTOR, case.actor, "the ledger itself")


_VERDICTS: Final[Mapping[str, Gate]] = dict(
    (
        on(ORGANISATION, _organisation),
        on(VOID, _settlement),
        on(LAPSE, _settlement),
        on(STATEMENT, _book_alone),
        on(ROTATION_OF_LOG, _book_alone),
        on(SUSPENSION_OF_LOG, _book_alone),
        *charges.VERDICTS,
        *documents.VERDICTS,
        *governance.VERDICTS,
        *organisation_lineage.VERDICTS,
        *partition_openings.VERDICTS,
        *releases.VERDICTS,
        *signing_keys.VERDICTS,
        *stream_slices.VERDICTS,
    )
)
