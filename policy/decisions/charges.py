"""Policy decision on a charge: the contract, the partitions, the caps on one run, and the bounds on its mechanism."""

from __future__ import annotations

from collections.abc import Hashable
from fractions import Fraction
from typing import Final

from ledger.commands.runs.charge import CHARGE
from ledger.commands.runs.charge_entry import MakeCharge
from ledger.domain.facts import Contract, Facts, Organisation, Partition
from ledger.domain.gate import REFUNDS
from ledger.domain.organisation_graph import Node, NodeKind, coalitions_of, joint_nodes
from ledger.domain.partition_ranges import in_words, partitions_within
from ledger.mechanisms.audited_plan import AuditedPlan
from ledger.mechanisms.decomposition import atoms, kinds_of
from ledger.mechanisms.run_plan import RunPlan
from ledger.organisation_lineage.contract_succession import continues
from ledger.wire.exact_numbers import format_number
from policy.decisions.contract_waivers import check_waivers
from policy.decisions.documents_in_force import (
    Binding,
    binding,
    binding_until,
    bindings,
    caps_of,
    last_moment,
    read_contract,
)
from policy.decisions.request import Case, on
from policy.decisions.stream_slices import check_gaps, check_windows
from policy.documents import Coalition, ContractDocument, DatasetName, Policy, RunLimits
from policy.documents.cap_parts import WHOLE, CapParts
from policy.documents.run_bounds import noise_multiplier_of, probability_of

MOVED_ALONG_SINCE_MS: Final = 1_797_292_800_000
"""A charge is refused under a contract that its sender came to only by being moved along with an organisation that it
colluded with. Of entries before this time (15 December 2026) replay accepts what was permitted."""


def charge(case: Case, body: MakeCharge) -> None:
    """Decide a charge: a contract in force, partitions of its datasets, every cap on one run."""
    facts = case.facts
    contract = case.exists("contract_unknown", facts.contracts.get(body.contract), f"contract {body.contract}")
    if contract is None:
        return
    document = read_contract(facts.documents[contract.document])
    check_contract_in_force(case, contract, document)
    check_consumer(case, contract, document)
    waived_until = check_waivers(case, document, body.pipeline)
    runs, source = contract.runs + 1, document.source
    case.count_at_most("runs_exhausted", "the number of runs with this one,", runs, document.runs_max, source)
    bound = _check_partitions(case, body, document)
    check_windows(case, [facts.partitions[ref] for ref in bound])
    policies = tuple(dict.fromkeys(binds.policy for binds in {id(terms): terms for terms in bound.values()}.values()))
    check_run_bounds(case, body.plan, document, policies)
    if isinstance(body.plan, AuditedPlan):
        _check_audit(case, body, body.plan, document)
    for policy in policies:
        if policy.pipeline:
            case.exists("pipeline_not_named", body.pipeline, "the pipeline's digest", "named", policy.source)
        if policy.step_leases:
            case.check(
                "leases_not_asked", bool(body.step_leases), "step leases", "asked for by the charge", policy.source
            )
    case.refund = strictest_refund(policies)
    partitions = {ref: facts.partitions[ref] for ref in bound}
    # Terms are compared by identity: comparing values takes longer.
    caps = {(partitions[ref].epsilon, id(cap)): (partitions[ref].epsilon, cap) for ref, cap in bound.items()}
    caps_by_terms = {key: caps_of(*stated, document) for key, stated in caps.items()}
    case.caps = ((ref, caps_by_terms[partitions[ref].epsilon, id(binds)]) for ref, binds in bound.items())
    changes = (binding_until(facts, partitions[ref], binds, case.now) for ref, binds in bound.items())
    ends = document.ends if waived_until is None else waived_until
    if case.is_accepted(MOVED_ALONG_SINCE_MS):
        ends = min(ends, MOVED_ALONG_SINCE_MS)
    case.until, case.runs_max = min((ends, *changes)), document.runs_max


def _check_partitions(case: Case, body: MakeCharge, document: ContractDocument) -> dict[str, Binding]:
    """Check every partition of a charge; return the terms that bind each. Equal partitions of ranges share a check."""
    facts = case.facts
    bound: dict[str, Binding] = {}
    for ref in body.partitions:
        opened = case.exists("partition_unknown", facts.partitions.get(ref), ref)
        if opened is not None and (binds := _check_partition(case, opened, document)):
            bound[ref] = binds
    if not body.ranges:
        return bound
    refs = partitions_within(facts, body.partitions, body.ranges)
    partitions = [facts.partitions[ref] for ref in refs[len(body.partitions) :]]
    for range_ in body.ranges:
        order = facts.opening_order(range_.dataset)
        ends = (order.places[f"{range_.dataset}/{name}"] for name in (range_.first, range_.last))
        first, last = ends
        check_gaps(case, [facts.partitions[ref] for ref in order.refs[first : last + 1]])
    for group in _group_equal(case, partitions):
        words = in_words(refs, [partition.ref for partition in group])
        # The oldest of them exceeds the age limit first.
        if binds := _check_partition(case, min(group, key=lambda partition: partition.opened), document, words):
            bound |= {partition.ref: binds for partition in group}
    return bound


def _group_equal(case: Case, partitions: list[Partition]) -> list[list[Partition]]:
    """Groups of partitions for which every check has the same result."""
    facts, now, groups = case.facts, case.now, dict[Hashable, list[Partition]]()
    epsilon = dict(case.request.epsilon)
    for partition, binds in zip(partitions, bindings(facts, partitions, now), strict=True):
        age = None if binds is None else binds.age_days_max
        too_old = age is not None and last_moment(partition, age) < now
        # Terms are compared by identity: comparing values takes longer.
        terms = partition.epsilon, partition.delta, epsilon.get(partition.ref), id(binds)
        key = partition.provider, partition.dataset, partition.retired, too_old, *terms
        groups.setdefault(key, []).append(partition)
    return [*groups.values()]


def strictest_refund(policies: tuple[Policy, ...]) -> str:
    """The strictest refund of leased steps that the policies of a run state; empty if one of them states none."""
    stated = [policy.refund for policy in policies]
    return next((word for word in REFUNDS if word in stated), "") if None not in stated else ""


def check_contract_in_force(case: Case, contract: Contract, document: ContractDocument) -> None:
    """Check that a contract is the newest version, not revoked, and between its start and its end."""
    check_newest(case, contract, document)
    check_not_revoked(case, contract, document)
    now, source = ("now", case.now), document.source
    case.not_after("contract_not_begun", ("the contract's start", document.starts), now, source)
    case.before("contract_ended", now, ("the contract's end", contract.ends), source)


def check_newest(case: Case, contract: Contract, document: ContractDocument) -> None:
    """Check that a contract is the newest version."""
    newest = case.facts.contract_heads.get(contract.id) == contract.document
    expected = f"the newest version of {contract.id}"
    case.check("contract_superseded", newest, f"version {contract.version}", expected, document.source)


def check_not_revoked(case: Case, contract: Contract, document: ContractDocument) -> None:
    """Check that no TDP has revoked a contract."""
    text = f"the contract is {'' if contract.revoked else 'not '}revoked by a TDP"
    case.add("contract_revoked", not contract.revoked, text, document.source)


def check_consumer(case: Case, contract: Contract, document: ContractDocument) -> None:
    """Check that the actor is the consumer that signed, or descends from it."""
    organisation = case.facts.organisations.get(case.actor)
    descends = organisation is not None and _descends(case, organisation, contract)
    expected = f"{contract.consumer}, as it was when it signed, or a descendant of it"
    case.check("actor_not_consumer", descends, case.actor, expected, document.source)


def _descends(case: Case, organisation: Organisation, contract: Contract) -> bool:
    nodes = case.facts.nodes
    joint = joint_nodes(nodes, organisation.node)
    if case.is_accepted(MOVED_ALONG_SINCE_MS):
        joint = frozenset(node for node in joint if nodes[node].kind is NodeKind.COLLUSION)
    return continues(case.facts, organisation, contract, joint)


def _check_partition(case: Case, partition: Partition, document: ContractDocument, words: str = "") -> Binding | None:
    """Check one partition, or equal ones by one of them; return its terms, or None without a policy in force."""
    ref, pair = words or partition.ref, DatasetName(partition.dataset, partition.provider)
    expected = "of a dataset in the contract"
    case.check("dataset_not_in_contract", pair in document.datasets, ref, expected, document.source)
    case.check("partition_retired", not partition.retired, ref, "open")
    case.exists("run_not_told", _epsilon_on(case, partition), f"the run's epsilon on {ref}", "known")
    binds = binding(case.facts, partition, case.now)
    _check_run(case, "contract", partition, document.run, document.source, ref, binds.parts if binds else WHOLE)
    if case.exists("policy_missing", binds, ref, "under a policy in force") is None:
        return None
    assert binds is not None
    policy = binds.policy
    _check_run(case, "policy", partition, policy.run, policy.source, ref, binds.parts)
    most = binds.parts.lineage_delta_max(policy, partition.epsilon)
    _check_delta(case, "lineage_delta_above_policy", partition, most, policy.source, binds.parts.beside(ref))
    _check_coalitions(case, policy)
    if binds.age_days_max is not None:
        limit = (f"the last moment of a charge to {ref},", last_moment(partition, binds.age_days_max))
        case.not_after("partition_too_old", ("now", case.now), limit, binds.age_source)
    return binds


def _epsilon_on(case: Case, partition: Partition) -> Fraction | None:
    """The ε of the run on a partition, if it is known."""
    return next((epsilon for ref, epsilon in case.request.epsilon if ref == partition.ref), None)


def _check_run(  # noqa: PLR0913, PLR0917 - whose bounds, of what
    case: Case, who: str, partition: Partition, limits: RunLimits, source: str, words: str, parts: CapParts
) -> None:
    """Check the ε of the run, if it is known, and the δ it is at, against one document's caps on one run."""
    subject = parts.beside(words)
    epsilon, most = _epsilon_on(case, partition), parts.of(limits.epsilon_max)
    if epsilon is not None:
        case.at_most(f"run_above_{who}", f"epsilon of the run on {subject}", epsilon, most, source)
    delta_most = parts.run_delta_max(limits, partition.epsilon)
    _check_delta(case, f"run_delta_above_{who}", partition, delta_most, source, subject)


def _check_delta(case: Case, code: str, partition: Partition, most: Fraction | None, source: str, words: str) -> None:  # noqa: PLR0913, PLR0917 - as above
    """Check the partition's own δ: every ε of it is at that δ, so no smaller δ can be promised."""
    if most is not None:
        case.at_most(code, f"delta of {words}", partition.delta, most, source)


def _check_coalitions(case: Case, policy: Policy) -> None:
    """Check that the policy's coalitions of the consumer are declared: until then their members cannot charge."""
    author = case.facts.organisations.get(case.actor)
    if author is None:
        return
    undeclared = undeclared_coalitions(case.facts, author, policy)
    for coalition in _coalitions_of(case.facts, author, policy):
        expected = f"declared with a cap of at most {format_number(coalition.epsilon_max)}"
        declared = coalition not in undeclared
        case.check("coalition_not_declared", declared, f"coalition {coalition.name}", expected, policy.source)


def undeclared_coalitions(facts: Facts, author: Organisation, policy: Policy) -> tuple[Coalition, ...]:
    """The policy's coalitions of an organisation that are not declared."""
    declared = [facts.nodes[coalition] for coalition in coalitions_of(facts.nodes, author.node)]
    stated = _coalitions_of(facts, author, policy)
    return tuple(coalition for coalition in stated if not any(covers(coalition, node) for node in declared))


def _coalitions_of(facts: Facts, author: Organisation, policy: Policy) -> tuple[Coalition, ...]:
    organisations = facts.organisations
    return tuple(
        coalition
        for coalition in policy.coalitions
        if author.node in {organisations[did].node for did in coalition.members if did in organisations}
    )


def covers(coalition: Coalition, declared: Node) -> bool:
    """Whether a declared coalition covers one that a policy names: at least its members, at most its ε."""
    capped = declared.epsilon is not None and declared.epsilon <= coalition.epsilon_max
    return capped and set(coalition.members) <= set(declared.members)


def check_run_bounds(case: Case, plan: RunPlan, contract: ContractDocument, policies: tuple[Policy, ...]) -> None:
    """Check a plan against the bounds of the contract and of every policy in force for its partitions."""
    whole = plan.mechanism(plan.steps)
    for kind in kinds_of(whole):
        if contract.run.mechanisms is not None:
            case.one_of("mechanism_not_in_contract", kind, contract.run.mechanisms, contract.source)
        for policy in policies:
            case.one_of("mechanism_not_permitted", kind, policy.mechanisms, policy.source)
    _check_mechanism(case, "contract", plan, contract)
    for policy in policies:
        _check_mechanism(case, "policy", plan, policy)


def _check_mechanism(case: Case, who: str, plan: RunPlan, document: ContractDocument | Policy) -> None:
    bounds, source = document.run, document.source
    if bounds.steps_max is not None:
        case.count_at_most(f"steps_above_{who}", "steps of the run", plan.steps, bounds.steps_max, source)
    for leaf in atoms(plan.mechanism(plan.steps)):
        if (least := bounds.noise_multiplier_min) is not None:
            noise = noise_multiplier_of(leaf, plan)
            if noise is None:
                # A mechanism without a noise multiplier cannot be compared with one.
                case.failed(f"noise_below_{who}", f"{leaf.kind} states no noise multiplier", source)
            else:
                case.at_least(f"noise_below_{who}", "noise multiplier", noise, least, source)
        if (most := bounds.probability_max) is not None:
            case.at_most(f"sampling_above_{who}", "sampling probability", probability_of(leaf), most, source)


def _check_audit(case: Case, body: MakeCharge, plan: AuditedPlan, document: ContractDocument) -> None:
    """Check an audited run: on one partition, which its provider has opened for audit, and of a named pipeline."""
    terms, source = document.audit, document.source
    several = bool(body.ranges) or len(body.partitions) > 1
    case.check("audit_on_several", not several, "an audited run", "on one partition")
    case.exists("pipeline_not_named", body.pipeline, "the pipeline's digest", "named")
    for ref in body.partitions:
        opened = terms is not None and ref in terms.partitions
        case.check("audit_not_agreed", opened, ref, "opened for audit by the contract", source)
    if terms is not None:
        case.count_at_most("canaries_above_contract", "canaries", plan.canaries, terms.canaries_max, source)


VERDICTS: Final = (on(CHARGE, charge),)
"""By kind of command."""
