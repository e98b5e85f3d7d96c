"""What a run may be: its mechanisms, noise, sampling and steps, as each policy and the contract bound them."""

from __future__ import annotations

from fractions import Fraction

from ledger.mechanisms.decomposition import kinds_of, leaves
from ledger.mechanisms.mechanism import Mechanism, SampledWithoutReplacement
from ledger.mechanisms.plan import AnyPlan
from policy.checks.findings import Findings
from policy.documents import ContractDocument, Policy, RunBounds


def within_bounds(findings: Findings, plan: AnyPlan, contract: ContractDocument, policies: tuple[Policy, ...]) -> None:
    """A plan within the contract and every policy that binds one of its partitions."""
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
    findings: Findings, who: str, steps: int, whole: Mechanism, bounds: RunBounds, source: str
) -> None:
    if bounds.steps_max is not None:
        findings.count_at_most(f"steps_above_{who}", "steps of the run", steps, bounds.steps_max, source)
    for leaf in leaves(whole):
        if (least := bounds.noise_multiplier_min) is not None:
            noise = getattr(leaf, "noise_multiplier", None)
            if noise is None:
                # What states no noise multiplier cannot be held to one.
                findings.failed(f"noise_below_{who}", f"{leaf.kind} states no noise multiplier", source)
            else:
                findings.at_least(f"noise_below_{who}", "noise multiplier", noise, least, source)
        if (most := bounds.probability_max) is not None:
            findings.at_most(f"sampling_above_{who}", "sampling probability", _probability(leaf), most, source)


def _probability(leaf: Mechanism) -> Fraction:
    """With which probability a record takes part in a step: 1 where nothing is sampled."""
    if isinstance(leaf, SampledWithoutReplacement):
        return Fraction(leaf.sample, leaf.population)
    return Fraction(getattr(leaf, "probability", 1))
