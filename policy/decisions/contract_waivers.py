"""Waivers of a contract: by the SRO of each dataset's domain, for one pipeline, until a date.

A DEPA pipeline may do things that have no price: join without a bound on a person's rows, fit its preprocessing on
records, show exact metrics. Its contract then lists each of them, and admits no run of another pipeline.
"""

from __future__ import annotations

from ledger.domain.roles import SRO
from policy.decisions.documents_in_force import policy_in_force
from policy.decisions.request import Case
from policy.documents import ContractDocument


def check_issuers(case: Case, document: ContractDocument) -> None:
    """Check that SROs issued the waivers, and that the SRO of each dataset's domain has waived each item."""
    facts, waivers = case.facts, document.waivers or ()
    for issuer in dict.fromkeys(waiver.issuer for waiver in waivers):
        organisation = facts.organisations.get(issuer)
        is_sro = organisation is not None and SRO in organisation.roles
        case.check("waiver_issuer_not_sro", is_sro, issuer, f"registered as {SRO}", document.source)
    pairs = {(waiver.waives, waiver.pipeline, waiver.issuer) for waiver in waivers}
    datasets = (facts.datasets.get((dataset.provider, dataset.dataset)) for dataset in document.datasets)
    domains = dict.fromkeys(dataset.domain for dataset in datasets if dataset is not None)
    for domain in domains if waivers else ():
        policy = policy_in_force(facts, domain, case.now)
        for waived, pipeline in sorted({(waiver.waives, waiver.pipeline) for waiver in waivers} if policy else ()):
            issuer = policy.issuer if policy else ""
            subject = f"{waived} of pipeline {pipeline}"
            whom = f"waived by {issuer}, who issues the policy of {domain}"
            case.check("waiver_missing", (waived, pipeline, issuer) in pairs, subject, whom, document.source)


def check_waivers(case: Case, document: ContractDocument, pipeline: str | None) -> int | None:
    """Check that a contract with waivers has valid ones for a run's pipeline; return their earliest end (ms)."""
    if not document.waivers:
        return None
    own = [waiver for waiver in document.waivers if waiver.pipeline == pipeline]
    subject = f"pipeline {pipeline}" if pipeline else "no pipeline"
    case.check("waiver_other_pipeline", bool(own), subject, "one that the contract's waivers name", document.source)
    for valid in own:
        text = f"the end of the waiver of {valid.waives} by {valid.issuer}"
        case.before("waiver_ended", ("now", case.now), (text, valid.ends), document.source)
    return min((waiver.ends for waiver in own), default=None)
