"""The gate: the policy decision on every command, denied by default, with all checks in order.

``gate`` dispatches each kind of command to the module that decides it. An internal error denies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ledger.domain.commands import Post, RegisterOrganisation, Settle
from ledger.domain.facts import Facts
from ledger.domain.gate import Request, Verdict
from policy.checks.findings import Findings
from policy.decisions import lineage
from policy.decisions.charges import charge
from policy.decisions.documents import contract, dataset, policy, recommendation
from policy.decisions.governance import decree, revocation
from policy.decisions.partitions import partition, retirement
from policy.decisions.releases import key_release, model_opening, model_release, release_notice
from policy.decisions.request import body_of


def gate(request: Request, facts: Facts) -> Verdict:
    """Decide. Never raises: an unknown kind denies, and so does an internal error."""
    decide = _DECIDES.get(request.command.kind)
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


def _organisation(request: Request, facts: Facts) -> Verdict:
    findings = Findings()
    actor = request.command.actor
    known = actor in facts.organisations or actor == body_of(request, RegisterOrganisation).organisation
    findings.check("actor_unknown", known, actor, "registered, or registering itself")
    return findings.verdict()


def _post(request: Request, facts: Facts) -> Verdict:
    return _of_charge(body_of(request, Post).charge, facts)


def _settle(request: Request, facts: Facts) -> Verdict:
    return _of_charge(body_of(request, Settle).charge, facts)


def _of_charge(name: str, facts: Facts) -> Verdict:
    findings = Findings()
    findings.check("charge_unknown", name in facts.charges, f"charge {name}", "on record")
    return findings.verdict()


_DECIDES: Final[Mapping[str, Callable[[Request, Facts], Verdict]]] = {
    "organisation": _organisation,
    "policy": policy,
    "dataset": dataset,
    "partition": partition,
    "retirement": retirement,
    "contract": contract,
    "charge": charge,
    "key_release": key_release,
    "post": _post,
    "void": _settle,
    "lapse": _settle,
    "model_release": model_release,
    "recommendation": recommendation,
    "revocation": revocation,
    "decree": decree,
    "release_notice": release_notice,
    "model_opening": model_opening,
    "merger": lineage.merger,
    "acquisition": lineage.merger,
    "collusion": lineage.collusion,
    "split": lineage.split,
    "transfer": lineage.transfer,
    "publication": lineage.publication,
    "coalition": lineage.coalition,
}
