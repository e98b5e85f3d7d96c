"""The gate: the policy decision on every command, denied by default, with all checks in order.

``gate`` dispatches each kind of command to the module that decides it. An internal error denies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ledger.commands.registration.organisation import ORGANISATION, RegisterOrganisation
from ledger.commands.runs.settlement import LAPSE, POST, VOID, Post, Settle
from ledger.domain.facts import Facts
from ledger.domain.gate import Gate, Request, Verdict
from policy.checks.findings import Findings
from policy.decisions import charges, documents, governance, organisation_lineage, partitions, releases
from policy.decisions.request import on


def gate(request: Request, facts: Facts) -> Verdict:
    """Decide. Never raises: an unknown kind denies, and so does an internal error."""
    decide = _VERDICTS.get(request.command.kind)
    if decide is None:
        return _denied("kind_unknown", f"no rule permits {request.command.kind[:80]!r}")
    try:
        return decide(request, facts)
    except Exception as error:  # noqa: BLE001 - whatever goes wrong in a decision, the answer is no
        return _denied("evaluation_error", f"{type(error).__name__}: {str(error)[:200]}")


def _denied(code: str, text: str) -> Verdict:
    findings = Findings()
    findings.failed(code, text)
    return findings.verdict()


def _organisation(request: Request, body: RegisterOrganisation, facts: Facts) -> Verdict:
    findings = Findings()
    actor = request.command.actor
    known = actor in facts.organisations or actor == body.organisation
    findings.check("actor_unknown", known, actor, "registered, or registering itself")
    return findings.verdict()


def _settlement(_request: Request, body: Post | Settle, facts: Facts) -> Verdict:
    findings = Findings()
    findings.check("charge_unknown", body.charge in facts.charges, f"charge {body.charge}", "on record")
    return findings.verdict()


_VERDICTS: Final[Mapping[str, Gate]] = dict(
    (
        on(ORGANISATION, _organisation),
        on(POST, _settlement),
        on(VOID, _settlement),
        on(LAPSE, _settlement),
        *charges.VERDICTS,
        *documents.VERDICTS,
        *governance.VERDICTS,
        *organisation_lineage.VERDICTS,
        *partitions.VERDICTS,
        *releases.VERDICTS,
    )
)
