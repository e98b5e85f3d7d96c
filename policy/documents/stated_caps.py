"""The caps that a policy, and a contract under it, state: on lineages, on coalitions, as a quota, and on one run."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ledger.domain.gate import Caps
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


def policy_states(policy: Policy) -> list[Stated]:
    """The caps of a policy alone; its quota is of the largest budget that it allows."""
    stated: list[Stated] = [NamedCap(policy.lineage.epsilon_max, f"{policy.source}, lineage")]
    stated += [
        NamedCap(coalition.epsilon_max, f"{policy.source}, coalition {coalition.name}")
        for coalition in policy.coalitions
    ]
    if policy.share_max is not None:
        stated.append(NamedCap(policy.budget.epsilon_max, f"{policy.source}, quota", policy.share_max))
    return [*stated, NamedRunLimits(policy.run.epsilon_max, policy.run_bounds, f"{policy.source}, one run")]


def contract_states(epsilon: Fraction, caps: Caps, policy: Policy, contract: ContractDocument) -> list[Stated]:
    """The caps on a contract's runs on a partition with a budget of ``epsilon``, of all documents the least."""
    stated: list[Stated] = [NamedCap(caps.lineage, f"{caps.lineage_source or 'the partition'}, lineage")]
    if caps.share is not None:
        stated.append(NamedCap(epsilon, f"{caps.share_source}, quota", caps.share))
    limits, source = min(
        ((document.run, document.source) for document in (contract, policy)), key=lambda one: one[0].epsilon_max
    )
    bounds = strictest((contract.run, policy.run_bounds))
    return [*stated, NamedRunLimits(limits.epsilon_max, bounds, f"{source}, one run")]
