"""What stands, held in memory: the state that replay rebuilds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ledger.loss import Loss, loss_of
from ledger.outcomes import ChargeState
from ledger.registry import (
    Account,
    Charge,
    Contract,
    Dataset,
    Node,
    Organisation,
    Partition,
    PolicyVersion,
    SigningKey,
)


@dataclass
class MemoryState:
    """Plain dictionaries. See :class:`ledger.registry.State`."""

    documents: dict[str, bytes] = field(default_factory=dict)
    organisations: dict[str, Organisation] = field(default_factory=dict)
    keys: dict[str, SigningKey] = field(default_factory=dict)
    policies: dict[str, tuple[PolicyVersion, ...]] = field(default_factory=dict)
    datasets: dict[tuple[str, str], Dataset] = field(default_factory=dict)
    partitions: dict[str, Partition] = field(default_factory=dict)
    contracts: dict[str, Contract] = field(default_factory=dict)
    contract_heads: dict[str, str] = field(default_factory=dict)
    charges: dict[str, Charge] = field(default_factory=dict)
    accounts: dict[tuple[str, str], Account] = field(default_factory=dict)
    nodes: dict[int, Node] = field(default_factory=dict)

    def exposures(self, authors: frozenset[int]) -> Iterator[tuple[str, Loss, Loss]]:
        """Per partition: posted and pending loss of these authors' charges."""
        return sum_exposures(one for one in self.charges.values() if one.author in authors)


def sum_exposures(charges: Iterable[Charge]) -> Iterator[tuple[str, Loss, Loss]]:
    """Per partition, what these charges have posted and have pending."""
    sums: dict[str, tuple[Loss, Loss]] = {}
    for one in charges:
        for ref, segments in one.prices:
            zero = Loss.zero(len(segments[0].price))
            posted, pending = sums.get(ref, (zero, zero))
            if one.state is ChargeState.PENDING:
                pending += loss_of(segments, one.steps)
            elif one.steps_posted is not None:
                posted += loss_of(segments, one.steps_posted)
            sums[ref] = (posted, pending)
    return ((ref, posted, pending) for ref, (posted, pending) in sorted(sums.items()))
