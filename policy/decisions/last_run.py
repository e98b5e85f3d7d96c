"""Whether the last run may be charged once more under the documents: their limits on one run, and on how many.

A capacity gives how many runs fit. The contract and the policy also bound each run by itself: its ε, its steps, its
mechanisms, their noise and sampling. They may have changed since the last run was charged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from ledger.accounts.pricing import COMPUTED
from ledger.domain.decision import Rejected
from ledger.domain.facts import Contract, Facts, Partition
from ledger.mechanisms.loss import Loss
from ledger.mechanisms.run_plan import RunPlan
from ledger.wire.exact_numbers import ceil_decimal, format_number
from ledger.wire.malformed import Malformed
from policy.decisions.documents_in_force import Binding, contract_in_force
from policy.documents import ContractDocument, DatasetName
from policy.documents.run_bounds import RunBounds

_PLACES = 4


@dataclass(frozen=True, slots=True)
class LastRun:
    """A run that was charged to a partition.

    Attributes:
        loss: what it costs the partition, by its whole plan.
        unit_records_max: how many records one privacy unit has at most in what it was trained on, if stated.
    """

    loss: Loss
    plan: RunPlan
    unit_records_max: int | None = None


@dataclass(frozen=True, slots=True)
class LastRunBounds:
    """The bounds on one more run like the last one, at a time (ms).

    Attributes:
        contract: by which it would be charged; None if no single one is known: then only the policy applies.
    """

    facts: Facts
    partition: Partition
    binds: Binding
    contract: Contract | None
    now: int

    @property
    def document(self) -> ContractDocument | None:
        """The contract's document, if runs may be charged under it."""
        return None if self.contract is None else contract_in_force(self.facts, self.contract, self.now)

    def why_none(self, run: LastRun) -> str:
        """Why no equal run may be charged, even with room; empty if one may."""
        document = self.document
        if self.contract is not None and document is None:
            return f"contract {self.contract.id} version {self.contract.version} is not in force"
        if (
            document is not None
            and DatasetName(self.partition.dataset, self.partition.provider) not in document.datasets
        ):
            return f"{document.source} does not name the dataset"
        return next(self._bars(run), "")

    def _bars(self, run: LastRun) -> Iterator[str]:
        for source, epsilon_max, bounds in self._stated_bounds():
            text = bounds.bars(self.partition.delta, run.plan)
            if text:
                yield f"{text}, by {source}"
            if bounds.steps_max is not None and run.plan.steps > bounds.steps_max:
                yield f"a run has at most {bounds.steps_max} steps, by {source}"
            yield from self._above(run, epsilon_max, source)

    def _above(self, run: LastRun, epsilon_max: Fraction, source: str) -> Iterator[str]:
        try:
            epsilon = COMPUTED.epsilon(self.partition, run)
        except (Malformed, Rejected) as error:
            yield f"its ε is not known: {error.decided.detail if isinstance(error, Rejected) else error}"
            return
        if epsilon > epsilon_max:
            number = ceil_decimal(epsilon, _PLACES)
            yield f"one run has an ε of at most {format_number(epsilon_max)}, and such a run {number}, by {source}"

    def _stated_bounds(self) -> Iterator[tuple[str, Fraction, RunBounds]]:
        """Each document that bounds one run: its name, the cap on ε, and the other bounds."""
        policy, document = self.binds.policy, self.document
        parts, budget = self.binds.parts, self.partition.epsilon
        if document is not None:
            bounds = parts.contract_bounds(document, budget)
            yield parts.source(document.source), parts.of(document.run.epsilon_max), bounds
        yield parts.source(policy.source), parts.of(policy.run.epsilon_max), parts.policy_bounds(policy, budget)
