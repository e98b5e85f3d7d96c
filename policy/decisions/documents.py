"""Policy decisions on documents: a policy, a recommendation, a dataset description, a contract."""

from __future__ import annotations

from typing import Final

from ledger.commands.registration.document import CONTRACT, DATASET, POLICY, RECOMMENDATION, EnterDocument
from ledger.domain.facts import PolicyVersion
from ledger.domain.gate import Header
from policy.checks.field_readers import DAY_MS, format_time
from policy.decisions.contract_waivers import check_issuers
from policy.decisions.documents_in_force import (
    caps_everyone,
    policy_in_force,
    read_contract,
    read_dataset,
    read_policy,
    read_recommendation,
)
from policy.decisions.request import Case, on
from policy.documents import Policy, Recommendation

SECOND_MS: Final = 1_000
LATER_SINCE_MS: Final = 1_797_292_800_000
"""2026-12-15: replay accepts that an earlier program dated a wider version like one that was in force already."""
SUPERSEDED_SINCE_MS: Final = 1_797_292_800_000
"""2026-12-15: from then on a version is dated after the one in force, and replaces one that is announced for later."""


def policy(case: Case, body: EnterDocument) -> None:
    """Decide a version of a domain's policy: by its issuer, in order, never dated back by more than a day."""
    document = case.document(body.document, read_policy)
    if document is None:
        return
    source, earlier = document.source, case.facts.policies.get(document.domain, ())
    _check_author(case, "issuer", document.issuer, source)
    newest = earlier[-1] if earlier else None
    _check_next(case, f"version in {document.domain}", document, newest)
    last = newest if case.now < SUPERSEDED_SINCE_MS else policy_in_force(case.facts, document.domain, case.now)
    if last:
        of_last = (
            "the last version's effective date" if last is newest else "the effective date of the version in force"
        )
        times = (of_last, last.effective), ("the effective date", document.effective)
        in_force = read_policy(case.facts.documents[last.document]) if last.effective + SECOND_MS <= case.now else None
        if in_force is None or case.is_accepted(LATER_SINCE_MS) or _binds_as_strictly(document, in_force):
            case.not_after("effective_unordered", *times, source)
        else:
            # With the same date it would never have been in force, and open partitions would keep nothing of it. Dates
            # have seconds, so within the second of its own date it may still be replaced.
            case.before("effective_unordered", *times, source)
    for coalition in document.coalitions:
        for did in coalition.members:
            registered = did in case.facts.organisations
            case.check("member_unknown", registered, f"{did} of {coalition.name}", "registered", source)
    recent = document.effective >= case.now - DAY_MS
    stated = f"the effective date {format_time(document.effective)}"
    case.add("effective_past", recent, f"{stated} is {'not ' if recent else ''}more than one day past", source)
    case.header = Header("policy", document.id, document.version, domain=document.domain, starts=document.effective)


def _binds_as_strictly(policy: Policy, last: Policy) -> bool:
    """Whether a version keeps for open partitions all that binds them from the last one on: its Levels and caps."""
    named = {(one.provider, one.dataset) for either in (policy, last) for one in either.levels}
    levels = [(policy.level, last.level), *((policy.level_of(*one), last.level_of(*one)) for one in named)]
    return policy.lineage.epsilon_max <= last.lineage.epsilon_max and all(
        level >= before and caps_everyone(policy, level) >= caps_everyone(last, before) for level, before in levels
    )


def dataset(case: Case, body: EnterDocument) -> None:
    """Decide a dataset: by its provider, once, in a domain that some policy governs."""
    document = case.document(body.document, read_dataset)
    if document is None:
        return
    source = document.source
    _check_author(case, "provider", document.provider, source)
    # With another domain in a second entry, its open partitions would leave their Level.
    case.check("dataset_known", (document.provider, document.id) not in case.facts.datasets, source, "new")
    in_force = policy_in_force(case.facts, document.domain, case.now)
    case.exists("policy_missing", in_force, f"domain {document.domain}", "under a policy in force")
    case.header = Header("dataset", document.id, 1, domain=document.domain, providers=(document.provider,))


def recommendation(case: Case, body: EnterDocument) -> None:
    """Decide a version of a TSO's recommendation for a registered dataset."""
    document = case.document(body.document, read_recommendation)
    if document is None:
        return
    source = document.source
    _check_author(case, "issuer", document.issuer, source)
    dataset = case.facts.datasets.get((document.provider, document.dataset))
    case.exists("dataset_unknown", dataset, f"{document.provider}/{document.dataset}", "registered", source)
    digest = dataset.recommendation if dataset else None
    last = read_recommendation(case.facts.documents[digest]) if digest else None
    _check_next(case, f"version for {document.dataset}", document, last)
    case.header = Header("recommendation", document.dataset, document.version, providers=(document.provider,))


def contract(case: Case, body: EnterDocument) -> None:
    """Decide a version of a contract: signed by all its parties, and by those of the version that it replaces."""
    document = case.document(body.document, read_contract)
    if document is None:
        return
    facts, source = case.facts, document.source
    case.check("actor_not_party", case.actor in document.parties, case.actor, "a party", source)
    for party, role in (*((tdp, "TDP") for tdp in document.tdps), (document.tdc, "TDC")):
        organisation = facts.organisations.get(party)
        roles = organisation.roles if organisation else ()
        case.check("party_role_missing", role in roles, party, f"registered as {role}", source)
    for dataset in document.datasets:
        registered = (dataset.provider, dataset.dataset) in facts.datasets
        case.check("dataset_unknown", registered, f"{dataset.provider}/{dataset.dataset}", "registered", source)
    replaced = facts.contracts.get(facts.contract_heads.get(document.id, ""))
    expected = replaced.version + 1 if replaced else 1
    case.equal("version_not_next", f"version of {document.id}", document.version, expected, source)
    case.before("contract_ended", ("now", case.now), ("the contract's end", document.ends), source)
    # Without the earlier parties' signatures anyone could take over the id and end a contract of others.
    earlier = (*replaced.providers, replaced.consumer) if replaced else ()
    case.signed_by(dict.fromkeys((*document.signers, *earlier)), source)
    check_issuers(case, document)
    names, term = (document.tdc, document.tdps), (document.starts, document.ends)
    case.header = Header("contract", document.id, document.version, "", *names, *term)


def _check_author(case: Case, role: str, author: str, source: str) -> None:
    """Check that a document is entered and signed by its issuer or provider."""
    case.equal(f"actor_not_{role}", "actor", case.actor, author, source)
    case.signed_by((author,), source)


def _check_next(
    case: Case, subject: str, document: Policy | Recommendation, last: PolicyVersion | Recommendation | None
) -> None:
    """Check that a version follows the last one, and is of the same issuer."""
    case.equal("version_not_next", subject, document.version, last.version + 1 if last else 1, document.source)
    if last:
        case.equal("issuer_changed", "issuer", document.issuer, last.issuer, document.source)


VERDICTS: Final = (on(POLICY, policy), on(RECOMMENDATION, recommendation), on(DATASET, dataset), on(CONTRACT, contract))
"""By kind of command."""
