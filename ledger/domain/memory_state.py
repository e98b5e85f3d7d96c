"""The current state in memory, built from the entries by the writer and by replay."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from ledger.domain.charge_record import Charge
from ledger.domain.facts import (
    Account,
    Audit,
    Contract,
    Dataset,
    OpeningOrder,
    Organisation,
    Partition,
    PolicyVersion,
    SigningKey,
    Span,
    StreamVersion,
)
from ledger.domain.key_terms import ExtendedQuorum, KeyTerms, RecoveryQuorum
from ledger.domain.organisation_graph import Node, NodeKind
from ledger.domain.outcomes import ChargeState
from ledger.domain.partition_ranges import OpeningOrders, PartitionRange, partitions_within
from ledger.mechanisms.loss import Loss, Segment, loss_of

_WITHIN_MAX: Final = 512
"""Ranges whose partitions are cached."""


@dataclass
class MemoryState:
    """Facts in dictionaries, which only :func:`ledger.commands.apply.apply` changes."""

    documents: Mapping[str, bytes] = field(default_factory=dict)
    organisations: dict[str, Organisation] = field(default_factory=dict)
    keys: MutableMapping[str, SigningKey] = field(default_factory=dict)
    key_terms: dict[str, KeyTerms] = field(default_factory=dict)
    recovery_quorums: dict[str, RecoveryQuorum] = field(default_factory=dict)
    extended_quorums: dict[str, ExtendedQuorum] = field(default_factory=dict)
    policies: dict[str, tuple[PolicyVersion, ...]] = field(default_factory=dict)
    datasets: dict[tuple[str, str], Dataset] = field(default_factory=dict)
    streams: dict[tuple[str, str], tuple[StreamVersion, ...]] = field(default_factory=dict)
    audits: dict[str, Audit] = field(default_factory=dict)
    partitions: dict[str, Partition] = field(default_factory=dict)
    contracts: dict[str, Contract] = field(default_factory=dict)
    contract_heads: dict[str, str] = field(default_factory=dict)
    charges: MutableMapping[str, Charge] = field(default_factory=dict)
    accounts: dict[tuple[str, str], Account] = field(default_factory=dict)
    forgiven: dict[tuple[str, str], Loss] = field(default_factory=dict)
    nodes: dict[int, Node] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin without indexes; they grow as they are used."""
        self._authored = Authored()
        self._published = 0, -1
        self._orders = OpeningOrders()
        self._within: dict[tuple[tuple[str, ...], tuple[PartitionRange, ...]], tuple[str, ...]] = {}

    @property
    def publication(self) -> int | None:
        """The newest publication node."""
        seen, newest = self._published
        for node in islice(self.nodes.values(), seen, None):
            newest = node.index if node.kind is NodeKind.PUBLIC else newest
        self._published = len(self.nodes), newest
        return None if newest < 0 else newest

    def opening_order(self, dataset: str) -> OpeningOrder:
        """The partitions of a dataset in order of opening."""
        return self._orders.of(self.partitions, dataset)

    def fetch_partitions(self, refs: Sequence[str]) -> None:
        """Nothing to prefetch: they are in memory."""

    def fetch_accounts(self, partitions: Sequence[str], holders: Sequence[str]) -> None:
        """Nothing to prefetch: they are in memory."""

    def partitions_of(self, listed: tuple[str, ...], ranges: tuple[PartitionRange, ...]) -> tuple[str, ...]:
        """The partitions that an admitted charge names; the same tuple for equal charges. Raises: Rejected."""
        if not ranges:
            return listed
        refs = self._within.get((listed, ranges))
        if refs is None:
            if len(self._within) >= _WITHIN_MAX:
                self._within.clear()
            refs = self._within[listed, ranges] = partitions_within(self, listed, ranges)
        return refs

    def change_charge(self, name: str, change: Callable[[Charge], Charge]) -> None:
        """Change a charge that may be settled already. Raises: KeyError."""
        self.charges[name] = change(self.charges[name])

    def accounts_of(self, holder: str) -> list[Account]:
        """Every account of one holder, by partition."""
        return [account for ref in sorted(self.partitions) if (account := self.accounts.get((ref, holder)))]

    def keys_of(self, did: str) -> list[SigningKey]:
        """Every key that was ever an organisation's, in the order of their entries."""
        keys = (key for key in self.keys.values() if key.owner == did and key.charge is None)
        return sorted(keys, key=lambda one: one.index)

    def pending_charges(self) -> Iterable[Charge]:
        """The charges that are not settled."""
        return (charge for charge in self.charges.values() if charge.state is ChargeState.PENDING)

    def runs(self, spans: Iterable[Span]) -> int:
        """How many charges there are in these spans."""
        self._authored.take(self.charges)
        return sum(len(self._authored.names(span)) for span in spans)

    def exposures(self, spans: Iterable[Span]) -> Iterator[tuple[str, Loss, Loss]]:
        """Per partition: posted and pending loss of the charges in these spans."""
        self._authored.take(self.charges)
        return sum_exposures((self.charges[name], 1) for span in spans for name in self._authored.names(span))


class Authored:
    """The ids of charges by author, in order of entry; charges are only ever added, in that order."""

    def __init__(self) -> None:
        """None yet."""
        self._seen = 0
        self._indexes: dict[int, list[int]] = {}
        self._names: dict[int, list[str]] = {}

    def take(self, charges: Mapping[str, Charge]) -> None:
        """Index the charges that were added since."""
        for charge in islice(charges.values(), self._seen, None):
            self._indexes.setdefault(charge.author, []).append(charge.index)
            self._names.setdefault(charge.author, []).append(charge.id)
        self._seen = len(charges)

    def names(self, span: Span) -> list[str]:
        """The ids in one span."""
        indexes = self._indexes.get(span.author, [])
        first, before = bisect_left(indexes, span.first), bisect_left(indexes, span.before)
        return self._names.get(span.author, [])[first:before]


def sum_exposures(charges: Iterable[tuple[Charge, int]]) -> Iterator[tuple[str, Loss, Loss]]:
    """Per partition, what these charges, each with how many there are like it, have posted and have pending."""
    # Equal runs are counted, and their loss is computed once: most runs of a contract cost the same.
    counts: Counter[tuple[tuple[tuple[tuple[str, ...], tuple[Segment, ...]], ...], bool, int | None]] = Counter()
    for charge, alike in charges:
        waits = charge.state is ChargeState.PENDING
        counts[charge.price_groups, waits, charge.steps if waits else charge.steps_posted] += alike
    sums: dict[str, tuple[Loss, Loss]] = {}
    for (prices, waits, steps), count in counts.items():
        for refs, segments in prices:
            zero = Loss.zero(len(segments[0].price))
            loss = zero if steps is None else loss_of(segments, steps).times(count)
            for ref in refs:
                posted, pending = sums.get(ref, (zero, zero))
                sums[ref] = (posted, pending + loss) if waits else (posted + loss, pending)
    return ((ref, posted, pending) for ref, (posted, pending) in sorted(sums.items()))
