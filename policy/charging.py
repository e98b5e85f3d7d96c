"""Partitions opened and retired, and what is charged to them, with the caps that bind."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from ledger.commands import MakeCharge, OpenPartition, Retire
from ledger.gate import Caps, Request, Verdict
from ledger.graph import NodeKind, ancestors
from ledger.pieces import kinds_of
from ledger.registry import Contract, Facts, Organisation, Partition
from ledger.units import parse_number
from policy.documents import ContractDocument, Policy
from policy.findings import Findings
from policy.in_force import Binding, binding, policy_in_force, read_contract, read_dataset, read_policy
from policy.inputs import body_of
from policy.reading import DAY_MS


def partition(request: Request, facts: Facts) -> Verdict:
    """A partition opened by its provider, with a budget within the policy of its dataset's domain."""
    body, findings = body_of(request, OpenPartition), Findings()
    findings.equal("actor_not_provider", "actor", request.command.actor, body.provider)
    dataset = facts.datasets.get((body.provider, body.dataset))
    findings.says("dataset_unknown", dataset is not None, f"{body.provider}/{body.dataset}", "registered")
    if dataset is None:
        return findings.verdict()
    document = read_dataset(facts.documents[dataset.document])
    findings.equal("unit_not_described", "unit", body.unit, document.unit, document.source)
    version = policy_in_force(facts, dataset.domain, request.now)
    findings.says("policy_missing", version is not None, f"domain {dataset.domain}", "under a policy in force")
    if version is None:
        return findings.verdict()
    policy = read_policy(facts.documents[version.document])
    epsilon = _budget(findings, body, policy)
    _terms(findings, body, policy)
    everyone = None if policy.level == 0 else epsilon
    caps = Caps(everyone, lineage=min(policy.lineage_epsilon_max, epsilon))
    return findings.verdict(caps=((body.ref, caps),))


def _budget(findings: Findings, body: OpenPartition, policy: Policy) -> Fraction:
    epsilon, delta = parse_number(body.epsilon, "epsilon"), parse_number(body.delta, "delta")
    findings.says("epsilon_not_positive", epsilon > 0, f"epsilon {body.epsilon}", "greater than 0")
    findings.at_most("epsilon_above_budget", "epsilon", epsilon, policy.epsilon_max, policy.source)
    findings.at_most("delta_above_budget", "delta", delta, policy.delta_max, policy.source)
    return epsilon


def _terms(findings: Findings, body: OpenPartition, policy: Policy) -> None:
    findings.equal("relation_not_permitted", "relation", body.relation, policy.relation, policy.source)
    findings.equal("unit_not_permitted", "unit", body.unit, policy.unit, policy.source)
    _one_of(findings, "rule_not_permitted", body.rule, policy.rules, policy.source)
    enough = body.records >= policy.records_min
    told = f"records: {body.records} {'>=' if enough else '<'} {policy.records_min}"
    findings.that("records_too_few", enough, told, policy.source)


def retirement(request: Request, facts: Facts) -> Verdict:
    """A partition retired by its provider."""
    ref, findings = body_of(request, Retire).partition, Findings()
    found = facts.partitions.get(ref)
    findings.says("partition_unknown", found is not None, ref, "on record")
    if found is not None:
        findings.equal("actor_not_provider", "actor", request.command.actor, found.provider)
    return findings.verdict()


def charge(request: Request, facts: Facts) -> Verdict:
    """A run charged under a contract in force, to partitions of its datasets, within every cap on one run."""
    body, findings = body_of(request, MakeCharge), Findings()
    contract = facts.contracts.get(body.contract)
    findings.says("contract_unknown", contract is not None, f"contract {body.contract}", "on record")
    if contract is None:
        return findings.verdict()
    document = read_contract(facts.documents[contract.document])
    contract_in_force(findings, contract, document, facts, request.now)
    _lineage(findings, request.command.actor, contract, document, facts)
    runs, source = contract.runs + 1, document.source
    findings.count_at_most("runs_exhausted", "runs with this one", runs, document.runs_max, source)
    bound: dict[str, Binding] = {}
    for ref in body.partitions:
        found = facts.partitions.get(ref)
        findings.says("partition_unknown", found is not None, ref, "on record")
        if found is not None and (binds := _charged(findings, request, found, document, facts)):
            bound[ref] = binds
    kinds = kinds_of(body.plan.mechanism(body.plan.steps))
    for policy in dict.fromkeys(binds.policy for binds in bound.values()):
        for kind in kinds:
            _one_of(findings, "mechanism_not_permitted", kind, policy.mechanisms, policy.source)
    caps = ((ref, _caps(facts.partitions[ref], binds, document)) for ref, binds in bound.items())
    return findings.verdict(caps=caps)


def contract_in_force(
    findings: Findings, contract: Contract, document: ContractDocument, facts: Facts, now: int
) -> None:
    """The newest version of its id, from its start until before its end."""
    newest = facts.contract_heads.get(contract.id) == contract.document
    told = f"the newest version of {contract.id}"
    findings.says("contract_superseded", newest, f"version {contract.version}", told, document.source)
    findings.not_after("contract_not_begun", ("starts", document.starts), ("now", now), document.source)
    findings.before("contract_ended", ("now", now), ("ends", document.ends), document.source)


def _lineage(findings: Findings, actor: str, contract: Contract, document: ContractDocument, facts: Facts) -> None:
    organisation = facts.organisations.get(actor)
    descends = organisation is not None and _goes_on(organisation, contract, facts)
    told = f"{contract.consumer}, as it was when it signed, or a descendant of it"
    findings.says("actor_not_consumer", descends, actor, told, document.source)


def _goes_on(organisation: Organisation, contract: Contract, facts: Facts) -> bool:
    at = facts.nodes[organisation.node]
    if contract.consumer_node == at.index:
        # Colluders stand together and are no body together: a contract is its own signer's.
        return at.kind is not NodeKind.COLLUSION or organisation.did == contract.consumer
    return contract.consumer_node in ancestors(facts.nodes, at.index, (node for _, node in organisation.moves))


def _charged(
    findings: Findings, request: Request, found: Partition, document: ContractDocument, facts: Facts
) -> Binding | None:
    """What binds one partition, None without a policy in force."""
    ref, pair = found.ref, (found.provider, found.dataset)
    told = "of a dataset in the contract"
    findings.says("dataset_not_in_contract", pair in document.datasets, ref, told, document.source)
    findings.says("partition_retired", not found.retired, ref, "open")
    epsilon = dict(request.epsilon).get(ref)
    findings.says("run_not_told", epsilon is not None, f"the run's epsilon on {ref}", "known")
    subject = f"epsilon of the run on {ref}"
    if epsilon is not None:
        most = document.run_epsilon_max
        findings.at_most("run_above_contract", subject, epsilon, most, document.source)
    binds = binding(facts, found, request.now)
    findings.says("policy_missing", binds is not None, ref, "under a policy in force")
    if binds is None:
        return None
    if epsilon is not None:
        most = binds.policy.run_epsilon_max
        findings.at_most("run_above_policy", subject, epsilon, most, binds.policy.source)
    if binds.age_days_max is not None:
        limit = (f"last charge to {ref}", found.opened + binds.age_days_max * DAY_MS)
        findings.not_after("partition_too_old", ("now", request.now), limit, binds.age_source)
    return binds


def _caps(found: Partition, binds: Binding, document: ContractDocument) -> Caps:
    limits = [binds.policy.lineage_epsilon_max, found.epsilon]
    if document.lineage_epsilon_max is not None:
        limits.append(document.lineage_epsilon_max)
    return Caps(None if binds.level == 0 else found.epsilon, lineage=min(limits))


def _one_of(findings: Findings, code: str, word: str, permitted: Iterable[str], source: str) -> None:
    findings.says(code, word in permitted, word, f"one of {', '.join(permitted)}", source)
