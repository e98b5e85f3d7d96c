"""The caps that a policy, and a contract under it, state: on lineages, on coalitions, as a quota, and on one run."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ledger.domain.gate import Caps
from policy.documents.cap_parts import WHOLE, CapParts
from policy.documents.contract import ContractDocument
from policy.documents.policy import Policy
from policy.documents.run_bounds import RunBounds, strictest


@dataclass(frozen=True, slots=True)
class NamedCap:
    """A cap on lineages, or on a coalition, of one partition; ``share`` if it is a quota of the capacity.

    Attributes:
        source: the document, and what in it, that states the cap.
    """

    epsilon: Fraction
    source: str
    share: Fraction | None = None


@dataclass(frozen=True, slots=True)
class NamedRunLimits:
    """The documents' limits on one run: the cap on its ε, and its other bounds.

    Attributes:
        source: the document that states the cap on its ε.
    """

    epsilon: Fraction
    bounds: RunBounds
    source: str


Stated = NamedCap | NamedRunLimits


def policy_states(policy: Policy, budget: Fraction, parts: CapParts = WHOLE) -> list[Stated]:
    """The caps of a policy alone on a partition with this budget; its quota is of the largest that it allows."""
    stated: list[Stated] = [NamedCap(parts.of(policy.lineage.epsilon_max), parts.source(f"{policy.source}, lineage"))]
    stated += [
        NamedCap(parts.of(coalition.epsilon_max), parts.source(f"{policy.source}, coalition {coalition.name}"))
        for coalition in policy.coalitions
    ]
    if policy.share_max is not None:
        stated.append(NamedCap(policy.budget.epsilon_max, f"{policy.source}, quota", policy.share_max))
    source, bounds = parts.source(f"{policy.source}, one run"), parts.policy_bounds(policy, budget)
    return [*stated, NamedRunLimits(parts.of(policy.run.epsilon_max), bounds, source)]


def contract_states(
    epsilon: Fraction, caps: Caps, policy: Policy, contract: ContractDocument, parts: CapParts = WHOLE
) -> list[Stated]:
    """The caps on a contract's runs on a partition with a budget of ``epsilon``, of all documents the least."""
    stated: list[Stated] = [NamedCap(caps.lineage, f"{caps.lineage_source or 'the partition'}, lineage")]
    if caps.share is not None:
        stated.append(NamedCap(epsilon, f"{caps.share_source}, quota", caps.share))
    limits, source = min(
        ((document.run, document.source) for document in (contract, policy)), key=lambda one: one[0].epsilon_max
    )
    bounds = strictest((parts.contract_bounds(contract, epsilon), parts.policy_bounds(policy, epsilon)))
    return [*stated, NamedRunLimits(parts.of(limits.epsilon_max), bounds, parts.source(f"{source}, one run"))]
