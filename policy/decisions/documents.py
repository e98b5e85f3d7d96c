"""Documents as they are entered: a policy, a recommendation, a dataset description, a contract."""

from __future__ import annotations

from typing import Final

from ledger.commands.registration.document import CONTRACT, DATASET, POLICY, RECOMMENDATION, EnterDocument
from ledger.domain.facts import Facts
from ledger.domain.gate import Header, Request, Verdict
from policy.checks.field_readers import DAY_MS, format_time
from policy.checks.findings import Findings
from policy.decisions.documents_in_force import (
    policy_in_force,
    read_contract,
    read_dataset,
    read_policy,
    read_recommendation,
)
from policy.decisions.request import check_signatures, document_of, on
from policy.documents import ContractDocument, Policy


def policy(request: Request, body: EnterDocument, facts: Facts) -> Verdict:
    """A version of a domain's policy: by its issuer, in order, never dated back by more than a day."""
    findings = Findings()
    document = document_of(findings, facts, body.document, read_policy)
    if document is None:
        return findings.verdict()
    source = document.source
    findings.equal("actor_not_issuer", "actor", request.command.actor, document.issuer, source)
    check_signatures(findings, request, (document.issuer,), source)
    _after_earlier(findings, document, facts)
    for one in document.coalitions:
        for did in one.members:
            findings.check("member_unknown", did in facts.organisations, f"{did} of {one.name}", "registered", source)
    recent = document.effective >= request.now - DAY_MS
    stated = f"the effective date {format_time(document.effective)}"
    findings.add("effective_past", recent, f"{stated} is {'not ' if recent else ''}more than one day past", source)
    return findings.verdict(
        Header("policy", document.id, document.version, domain=document.domain, starts=document.effective)
    )


def _after_earlier(findings: Findings, document: Policy, facts: Facts) -> None:
    earlier = facts.policies.get(document.domain, ())
    last = earlier[-1] if earlier else None
    wanted = last.version + 1 if last else 1
    findings.equal("version_not_next", f"version in {document.domain}", document.version, wanted, document.source)
    if last:
        findings.equal("issuer_changed", "issuer", document.issuer, last.issuer, document.source)
        times = ("the last version's effective date", last.effective), ("the effective date", document.effective)
        findings.not_after("effective_unordered", *times, document.source)


def dataset(request: Request, body: EnterDocument, facts: Facts) -> Verdict:
    """A dataset: by its provider, once, in a domain that some policy governs."""
    findings = Findings()
    document = document_of(findings, facts, body.document, read_dataset)
    if document is None:
        return findings.verdict()
    source = document.source
    findings.equal("actor_not_provider", "actor", request.command.actor, document.provider, source)
    check_signatures(findings, request, (document.provider,), source)
    # Entered again with another domain, its open partitions would leave their Level.
    fresh = (document.provider, document.id) not in facts.datasets
    findings.check("dataset_known", fresh, source, "new")
    governed = policy_in_force(facts, document.domain, request.now) is not None
    findings.check("policy_missing", governed, f"domain {document.domain}", "under a policy in force")
    providers = (document.provider,)
    return findings.verdict(Header("dataset", document.id, 1, domain=document.domain, providers=providers))


def recommendation(request: Request, body: EnterDocument, facts: Facts) -> Verdict:
    """A version of a TSO's recommendation for a dataset on record."""
    findings = Findings()
    document = document_of(findings, facts, body.document, read_recommendation)
    if document is None:
        return findings.verdict()
    source = document.source
    findings.equal("actor_not_issuer", "actor", request.command.actor, document.issuer, source)
    check_signatures(findings, request, (document.issuer,), source)
    found = facts.datasets.get((document.provider, document.dataset))
    findings.check(
        "dataset_unknown", found is not None, f"{document.provider}/{document.dataset}", "registered", source
    )
    digest = found.recommendation if found else None
    last = read_recommendation(facts.documents[digest]) if digest else None
    wanted = last.version + 1 if last else 1
    findings.equal("version_not_next", f"version for {document.dataset}", document.version, wanted, source)
    if last:
        findings.equal("issuer_changed", "issuer", document.issuer, last.issuer, source)
    providers = (document.provider,)
    return findings.verdict(Header("recommendation", document.dataset, document.version, providers=providers))


def contract(request: Request, body: EnterDocument, facts: Facts) -> Verdict:
    """A version of a contract: signed by all its parties, and by those of the version it replaces."""
    findings = Findings()
    document = document_of(findings, facts, body.document, read_contract)
    if document is None:
        return findings.verdict()
    source, actor = document.source, request.command.actor
    findings.check("actor_not_party", actor in document.parties, actor, "a party", source)
    _roles(findings, document, facts)
    for one in document.datasets:
        known = (one.provider, one.dataset) in facts.datasets
        findings.check("dataset_unknown", known, f"{one.provider}/{one.dataset}", "registered", source)
    replaced = facts.contracts.get(facts.contract_heads.get(document.id, ""))
    wanted = replaced.version + 1 if replaced else 1
    findings.equal("version_not_next", f"version of {document.id}", document.version, wanted, source)
    findings.before("contract_ended", ("now", request.now), ("the contract's end", document.ends), source)
    # Without the earlier parties anyone could take over the id, and so stop a contract of others.
    earlier = (*replaced.providers, replaced.consumer) if replaced else ()
    check_signatures(findings, request, tuple(dict.fromkeys((*document.parties, *earlier))), source)
    return findings.verdict(_contract_header(document))


def _roles(findings: Findings, document: ContractDocument, facts: Facts) -> None:
    for party, role in (*((tdp, "TDP") for tdp in document.tdps), (document.tdc, "TDC")):
        organisation = facts.organisations.get(party)
        roles = organisation.roles if organisation else ()
        findings.check("party_role_missing", role in roles, party, f"registered as {role}", document.source)


def _contract_header(document: ContractDocument) -> Header:
    return Header(
        kind="contract",
        id=document.id,
        version=document.version,
        consumer=document.tdc,
        providers=document.tdps,
        starts=document.starts,
        ends=document.ends,
    )


VERDICTS: Final = (on(POLICY, policy), on(RECOMMENDATION, recommendation), on(DATASET, dataset), on(CONTRACT, contract))
"""By kind of command."""
