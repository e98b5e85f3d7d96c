"""A slice's parts of the caps on one person, where a person may be in several slices of a stream.

A policy's cap on a lineage or on one run, a contract's, and a coalition's are of what one person may lose. A partition
by itself keeps such a cap where no person is in another partition. Where a person may be in m slices of a stream, each
slice keeps the part that :mod:`policy.documents.slice_budget` proves. A quota is a share of the slice's own capacity,
and needs no part. Partitions outside such streams have the whole of each cap: :data:`WHOLE`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from msgspec import structs

from ledger.wire.exact_numbers import equal_part
from policy.documents.contract import ContractDocument
from policy.documents.policy import Policy
from policy.documents.run_bounds import RunBounds, RunLimits, strictest
from policy.documents.slice_budget import slice_delta


@dataclass(frozen=True, slots=True)
class CapParts:
    """Into how many parts the caps on one person are divided for a partition.

    Attributes:
        appearances: in how many slices of the stream a person may be, this one included.
        stream: the version of the stream that states it, for people.
    """

    appearances: int = 1
    stream: str = ""

    @property
    def words(self) -> str:
        """Of which slices the partition is one, for people, if a person may be in several; else empty."""
        of = f"one of {self.appearances} slices of {self.stream} that a person may be in"
        return "" if self.appearances == 1 else of

    def beside(self, partition: str) -> str:
        """The name of the partition as the subject of a sentence, with these words."""
        return f"{partition}, {self.words}," if self.words else partition

    def source(self, document: str) -> str:
        """The name of a document that states a cap, as the source of the part; empty without a document."""
        return f"{document}, for {self.words}" if document and self.words else document

    def of(self, epsilon: Fraction) -> Fraction:
        """The part of a cap in ε, rounded down to six digits."""
        return equal_part(epsilon, self.appearances)

    def delta_max(self, delta: Fraction | None, epsilon: Fraction, budget: Fraction) -> Fraction | None:
        """The greatest δ of the partition, where what a person may lose is at a δ of at most ``delta``; None if any.

        Args:
            epsilon: the cap on what a person may lose.
            budget: the ε of the partition, which no account of it passes.
        """
        return None if delta is None else slice_delta(min(self.of(epsilon), budget), delta, self.appearances)

    def run_delta_max(self, limits: RunLimits, budget: Fraction) -> Fraction | None:
        """The same for a document's cap on one run."""
        return self.delta_max(limits.delta_max, limits.epsilon_max, budget)

    def lineage_delta_max(self, policy: Policy, budget: Fraction) -> Fraction | None:
        """The same for a policy's cap on a lineage."""
        return self.delta_max(policy.lineage.delta_max, policy.lineage.epsilon_max, budget)

    def policy_bounds(self, policy: Policy, budget: Fraction) -> RunBounds:
        """A policy's limits of one run beyond its ε, on a partition with this budget."""
        deltas = self.run_delta_max(policy.run, budget), self.lineage_delta_max(policy, budget)
        stated = [delta for delta in deltas if delta is not None]
        return structs.replace(policy.run_bounds, delta_max=min(stated, default=None))

    def contract_bounds(self, contract: ContractDocument, budget: Fraction) -> RunBounds:
        """A contract's limits of one run beyond its ε, on a partition with this budget."""
        return structs.replace(strictest((contract.run,)), delta_max=self.run_delta_max(contract.run, budget))


WHOLE: Final = CapParts()
"""Of a partition whose persons are in no other one."""
