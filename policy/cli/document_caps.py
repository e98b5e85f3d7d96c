"""The caps of a document that is in no book yet: whether the declared plan, or any run at all, could be admitted.

They are tried on the most favourable partition that the policy allows: its whole budget, or the cap on lineages as its
budget if only that can open, the first rule that can open, one record a privacy unit, no run yet. A run that does not
fit there fits nowhere under the policy, so a document that admits no run is refused.
"""

from __future__ import annotations

from fractions import Fraction

from ledger.domain.facts import Partition
from ledger.filters import NoRoom, Opening, Rule, choose_rule
from ledger.mechanisms.price_proofs import PRICED, NotPriced
from ledger.mechanisms.run_plan import RunPlan
from ledger.wire.canonical_json import dump
from ledger.wire.malformed import Malformed
from policy.decisions.documents_in_force import Binding, caps_everyone, caps_of
from policy.documents import ContractDocument, Policy
from policy.documents.run_bounds import strictest
from policy.documents.stated_caps import contract_states, policy_states
from policy.planning.usable_caps import CapReport, cap_reports

ANY = "any partition"
"""The partition's name in reports."""


def caps_of_documents(policy: Policy, contract: ContractDocument | None, plan: RunPlan | None) -> list[CapReport]:
    """How much of a plan each cap of a policy, or of a contract under it, admits; by default of the policy's own load.

    Raises:
        Malformed: if no run could ever be admitted, with the reason.
    """
    _require_priced_mechanism(policy, contract)
    load, binds = plan or policy.load, _binding(policy)
    caps = caps_of(policy.budget.epsilon_max, binds, contract)
    _open_partition(policy, caps.lineage, load)
    # A partition opens before its contracts, and independently of them.
    opened = _open_partition(policy, caps_of(policy.budget.epsilon_max, binds, None).lineage, load)
    if opened is None:
        return []
    epsilon, rule = opened
    partition = _partition(policy, epsilon, rule)
    stated = policy_states(policy, epsilon) if contract is None else contract_states(epsilon, caps, policy, contract)
    return list(cap_reports((partition,), stated, lambda _: load))


def _require_priced_mechanism(policy: Policy, contract: ContractDocument | None) -> None:
    allowed = strictest((policy.run_bounds, *([contract.run] if contract else []))).mechanisms or ()
    if not allowed:
        raise Malformed("run.mechanisms", f"shares none with {policy.source}: no run could ever be admitted")
    if not any((kind, policy.relation, rule) in PRICED for kind in allowed for rule in policy.rules):
        raise Malformed(
            "mechanisms",
            f"has none with a proven price under {policy.relation} in the rules {', '.join(policy.rules)}: "
            "no run could ever be admitted",
        )


def _open_partition(policy: Policy, lineage: Fraction, load: RunPlan | None) -> tuple[Fraction, Rule] | None:
    """The ε and the rule of the partition; None if every rule needs another load. Raises: Malformed."""
    whole, delta = None if load is None else load.mechanism(load.steps), policy.budget.delta_max
    closed: NoRoom | None = None
    for epsilon in (policy.budget.epsilon_max, lineage):
        for kind in policy.rules:
            try:
                return epsilon, choose_rule(kind, Opening(delta, (epsilon, lineage), whole, policy.relation))
            except NoRoom as error:
                closed = error
            except (Malformed, NotPriced):
                continue
    if closed is not None:
        raise Malformed("lineage.epsilon_max", f"lets no run ever be admitted, on any partition: {closed}")
    return None


def _binding(policy: Policy) -> Binding:
    return Binding(
        policy=policy,
        level=policy.level,
        level_source=policy.source,
        caps_everyone=caps_everyone(policy, policy.level),
        lineage_epsilon_max=policy.lineage.epsilon_max,
        lineage_source=policy.source,
        age_days_max=policy.partition_age_days_max,
        age_source=policy.source,
    )


def _partition(policy: Policy, epsilon: Fraction, rule: Rule) -> Partition:
    return Partition(
        ref=ANY,
        provider="",
        dataset="",
        epsilon=epsilon,
        delta=policy.budget.delta_max,
        relation=policy.relation,
        unit=policy.unit,
        unit_records_max=1,
        records=policy.records_min,
        data_key="",
        terms=dump(rule.to_json()).decode(),
        opened=0,
        retired=False,
        index=0,
    )
