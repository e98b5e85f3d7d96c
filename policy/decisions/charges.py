"""Policy decision on a charge: the contract, the partitions, the caps on one run, and the bounds on its mechanism."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from ledger.commands.runs.charge import CHARGE, MakeCharge
from ledger.domain.facts import Contract, Facts, Organisation, Partition
from ledger.domain.gate import Request, Verdict
from ledger.domain.organisation_graph import Node, NodeKind, ancestors, coalitions_of
from ledger.mechanisms.decomposition import atoms, kinds_of
from ledger.mechanisms.mechanism import Mechanism, SampledWithoutReplacement
from ledger.mechanisms.plan import RunPlan
from ledger.wire.exact_numbers import format_number
from policy.checks.field_readers import DAY_MS
from policy.checks.findings import Findings
from policy.decisions.documents_in_force import Binding, binding, caps_of, read_contract
from policy.decisions.request import on
from policy.documents import Coalition, ContractDocument, DatasetName, Policy, RunLimits


def charge(request: Request, body: MakeCharge, facts: Facts) -> Verdict:
    """Decide a charge: a contract in force, partitions of its datasets, every cap on one run."""
    findings = Findings()
    contract = facts.contracts.get(body.contract)
    findings.check("contract_unknown", contract is not None, f"contract {body.contract}", "on record")
    if contract is None:
        return findings.verdict()
    document = read_contract(facts.documents[contract.document])
    check_contract_in_force(findings, contract, document, facts, request.now)
    check_consumer(findings, request.command.actor, contract, document, facts)
    runs, source = contract.runs + 1, document.source
    findings.count_at_most("runs_exhausted", "the number of runs with this one,", runs, document.runs_max, source)
    bound: dict[str, Binding] = {}
    for ref in body.partitions:
        found = facts.partitions.get(ref)
        findings.check("partition_unknown", found is not None, ref, "on record")
        if found is not None and (binds := _charged(findings, request, found, document, facts)):
            bound[ref] = binds
    policies = tuple(dict.fromkeys(binds.policy for binds in bound.values()))
    check_run_bounds(findings, body.plan, document, policies)
    for policy in policies:
        if policy.pipeline:
            named = body.pipeline is not None
            findings.check("pipeline_not_named", named, "the pipeline's digest", "named", policy.source)
    caps = ((ref, caps_of(facts.partitions[ref].epsilon, binds, document)) for ref, binds in bound.items())
    return findings.verdict(caps=caps)


def check_contract_in_force(
    findings: Findings, contract: Contract, document: ContractDocument, facts: Facts, now: int
) -> None:
    """Check that a contract is the newest version, not revoked, and between its start and its end."""
    newest = facts.contract_heads.get(contract.id) == contract.document
    expected = f"the newest version of {contract.id}"
    findings.check("contract_superseded", newest, f"version {contract.version}", expected, document.source)
    check_not_revoked(findings, contract, document.source)
    findings.not_after("contract_not_begun", ("the contract's start", document.starts), ("now", now), document.source)
    findings.before("contract_ended", ("now", now), ("the contract's end", document.ends), document.source)


def check_not_revoked(findings: Findings, contract: Contract, source: str) -> None:
    """Check that no TDP has revoked a contract."""
    text = f"the contract is {'' if contract.revoked else 'not '}revoked by a TDP"
    findings.add("contract_revoked", not contract.revoked, text, source)


def check_consumer(
    findings: Findings, actor: str, contract: Contract, document: ContractDocument, facts: Facts
) -> None:
    """Check that the actor is the consumer that signed, or descends from it."""
    organisation = facts.organisations.get(actor)
    descends = organisation is not None and _descends(organisation, contract, facts)
    expected = f"{contract.consumer}, as it was when it signed, or a descendant of it"
    findings.check("actor_not_consumer", descends, actor, expected, document.source)


def _descends(organisation: Organisation, contract: Contract, facts: Facts) -> bool:
    visited = (node for _, node in organisation.moves)
    if contract.consumer_node not in ancestors(facts.nodes, organisation.node, visited, contract.index):
        return False
    # Colluders share a node but are no organisation: a contract signed there stays its signer's.
    together = facts.nodes[contract.consumer_node].kind is NodeKind.COLLUSION
    return not together or organisation.did == contract.consumer


def _charged(
    findings: Findings, request: Request, found: Partition, document: ContractDocument, facts: Facts
) -> Binding | None:
    """Check one partition; its binding terms, or None without a policy in force."""
    ref, pair = found.ref, DatasetName(found.dataset, found.provider)
    expected = "of a dataset in the contract"
    findings.check("dataset_not_in_contract", pair in document.datasets, ref, expected, document.source)
    findings.check("partition_retired", not found.retired, ref, "open")
    epsilon = dict(request.epsilon).get(ref)
    findings.check("run_not_told", epsilon is not None, f"the run's epsilon on {ref}", "known")
    subject = f"epsilon of the run on {ref}"
    if epsilon is not None:
        most = document.run.epsilon_max
        findings.at_most("run_above_contract", subject, epsilon, most, document.source)
    _delta(findings, "run_delta_above_contract", found, document.run.delta_max, document.source)
    binds = binding(facts, found, request.now)
    findings.check("policy_missing", binds is not None, ref, "under a policy in force")
    if binds is None:
        return None
    if epsilon is not None:
        most = binds.policy.run.epsilon_max
        findings.at_most("run_above_policy", subject, epsilon, most, binds.policy.source)
    _delta(findings, "run_delta_above_policy", found, binds.policy.run.delta_max, binds.policy.source)
    _delta(findings, "lineage_delta_above_policy", found, binds.policy.lineage.delta_max, binds.policy.source)
    _coalitions(findings, request, binds.policy, facts)
    if binds.age_days_max is not None:
        limit = (f"the last moment of a charge to {ref},", found.opened + binds.age_days_max * DAY_MS)
        findings.not_after("partition_too_old", ("now", request.now), limit, binds.age_source)
    return binds


def _delta(findings: Findings, code: str, found: Partition, most: Fraction | None, source: str) -> None:
    """Check the partition's own δ: every ε of it is at that δ, so no smaller δ can be promised."""
    if most is not None:
        findings.at_most(code, f"delta of {found.ref}", found.delta, most, source)


def _coalitions(findings: Findings, request: Request, policy: Policy, facts: Facts) -> None:
    """Check that the policy's coalitions of the consumer are declared: until then their members cannot charge."""
    author = facts.organisations.get(request.command.actor)
    if author is None:
        return
    declared = [facts.nodes[one] for one in coalitions_of(facts.nodes, author.node)]
    for named in policy.coalitions:
        nodes = {facts.organisations[did].node for did in named.members if did in facts.organisations}
        if author.node not in nodes:
            continue
        bound = any(covers(named, one) for one in declared)
        expected = f"declared with a cap of at most {format_number(named.epsilon_max)}"
        findings.check("coalition_not_declared", bound, f"coalition {named.name}", expected, policy.source)


def covers(named: Coalition, declared: Node) -> bool:
    """Whether a declared coalition is what a policy names: the same members or more, the same ε or less."""
    known = declared.epsilon is not None and declared.epsilon <= named.epsilon_max
    return known and set(named.members) <= set(declared.members)


def check_run_bounds(
    findings: Findings, plan: RunPlan, contract: ContractDocument, policies: tuple[Policy, ...]
) -> None:
    """Check a plan against the bounds of the contract and of every policy in force for its partitions."""
    whole = plan.mechanism(plan.steps)
    kinds = kinds_of(whole)
    for kind in kinds:
        if contract.run.mechanisms is not None:
            findings.one_of("mechanism_not_in_contract", kind, contract.run.mechanisms, contract.source)
        for policy in policies:
            findings.one_of("mechanism_not_permitted", kind, policy.mechanisms, policy.source)
    _bounded(findings, "contract", plan.steps, whole, contract.run, contract.source)
    for policy in policies:
        _bounded(findings, "policy", plan.steps, whole, policy.run, policy.source)


def _bounded(  # noqa: PLR0913, PLR0917 - a run, and who bounds it
    findings: Findings, who: str, steps: int, whole: Mechanism, bounds: RunLimits, source: str
) -> None:
    if bounds.steps_max is not None:
        findings.count_at_most(f"steps_above_{who}", "steps of the run", steps, bounds.steps_max, source)
    for leaf in atoms(whole):
        if (least := bounds.noise_multiplier_min) is not None:
            noise = getattr(leaf, "noise_multiplier", None)
            if noise is None:
                # A mechanism without a noise multiplier cannot be compared with one.
                findings.failed(f"noise_below_{who}", f"{leaf.kind} states no noise multiplier", source)
            else:
                findings.at_least(f"noise_below_{who}", "noise multiplier", noise, least, source)
        if (most := bounds.probability_max) is not None:
            findings.at_most(f"sampling_above_{who}", "sampling probability", _probability(leaf), most, source)


def _probability(leaf: Mechanism) -> Fraction:
    """The sampling probability of a step: 1 where nothing is sampled."""
    if isinstance(leaf, SampledWithoutReplacement):
        return Fraction(leaf.sample, leaf.population)
    return Fraction(getattr(leaf, "probability", 1))


VERDICTS: Final = (on(CHARGE, charge),)
"""By kind of command."""
