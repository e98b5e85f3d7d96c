"""Policy decisions on governance: a contract revoked by a TDP, an account reset by an SRO's decree."""

from __future__ import annotations

from typing import Final

from ledger.commands.governance.decree import DECREE, Decree
from ledger.commands.governance.revocation import REVOCATION, Revoke
from ledger.domain.facts import Facts
from ledger.domain.gate import Request, Verdict
from policy.checks.findings import Findings
from policy.decisions.documents_in_force import dataset_of, policy_in_force, read_contract
from policy.decisions.request import on


def revocation(request: Request, body: Revoke, facts: Facts) -> Verdict:
    """Decide a revocation: the newest version of a contract, by one of its TDPs."""
    findings = Findings()
    found = facts.contracts.get(body.contract)
    findings.check("contract_unknown", found is not None, f"contract {body.contract}", "on record")
    if found is None:
        return findings.verdict()
    document, actor = read_contract(facts.documents[found.document]), request.command.actor
    findings.check("actor_not_provider", actor in document.tdps, actor, "one of its TDPs", document.source)
    newest = facts.contract_heads.get(found.id) == found.document
    expected = f"the newest version of {found.id}"
    findings.check("contract_superseded", newest, f"version {found.version}", expected, document.source)
    return findings.verdict()


def decree(request: Request, body: Decree, facts: Facts) -> Verdict:
    """Decide a decree: only by the SRO whose policy is in force for the partition."""
    findings = Findings()
    found = facts.partitions.get(body.partition)
    findings.check("partition_unknown", found is not None, body.partition, "on record")
    if found is None:
        return findings.verdict()
    domain = dataset_of(facts, found).domain
    version = policy_in_force(facts, domain, request.now)
    findings.check("policy_missing", version is not None, f"domain {domain}", "under a policy in force")
    if version is not None:
        findings.equal("actor_not_issuer", "actor", request.command.actor, version.issuer, f"policy of {domain}")
    return findings.verdict()


VERDICTS: Final = (on(REVOCATION, revocation), on(DECREE, decree))
"""By kind of command."""
