"""The bounds in force for a partition, and the status of its accounts under their caps, as numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from ledger.domain.facts import GLOBAL, Account, Facts, Partition
from ledger.domain.lineage_graph import NodeKind
from ledger.filters import NoRoom, read_rule
from ledger.mechanisms.loss import Loss
from ledger.transitions import account_loss
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import ceil_decimal, format_number
from policy.checks.field_readers import DAY_MS, format_time
from policy.decisions.documents_in_force import binding
from policy.documents import RunBounds


@dataclass(frozen=True, slots=True)
class PartitionBounds:
    """The bounds that policies set on one partition.

    Attributes:
        everyone: the cap on the global account; None where it has none.
        lineage: the cap on each lineage; a contract may set a smaller one.
        run: the cap on one run, likewise; ``runs`` has its other bounds.
        share: the quota of each lineage, of the capacity; None if there is none.
        pipeline: whether a charge must name its pipeline.
        closes: the last moment (ms) of a charge, by the partition's age; None if it has none.
        source: the policy in force.
    """

    level: int
    everyone: Fraction | None
    lineage: Fraction
    run: Fraction
    runs: RunBounds
    share: Fraction | None
    pipeline: bool
    closes: int | None
    source: str

    def to_json(self) -> c.Object:
        """As JSON."""
        return {
            "closes": None if self.closes is None else format_time(self.closes),
            "epsilon_max": None if self.everyone is None else format_number(self.everyone),
            "level": self.level,
            "lineage_epsilon_max": format_number(self.lineage),
            "pipeline": self.pipeline,
            "run": self.runs.to_json(),
            "run_epsilon_max": format_number(self.run),
            "share_max": None if self.share is None else format_number(self.share),
            "source": self.source,
        }


def partition_bounds(facts: Facts, partition: Partition, now: int) -> PartitionBounds | None:
    """The bounds of a partition at a time (ms), None without a policy in force."""
    binds = binding(facts, partition, now)
    if binds is None:
        return None
    days = binds.age_days_max
    return PartitionBounds(
        level=binds.level,
        everyone=partition.epsilon if binds.caps_everyone else None,
        lineage=min(binds.lineage_epsilon_max, partition.epsilon),
        run=binds.policy.run_epsilon_max,
        runs=binds.policy.run_bounds,
        share=binds.policy.share_max,
        pipeline=binds.policy.pipeline,
        closes=None if days is None else partition.opened + days * DAY_MS,
        source=binds.policy.source,
    )


@dataclass(frozen=True, slots=True)
class AccountStatus:
    """One account under its cap, pending counted in full.

    Attributes:
        epsilon: the cap; None where there is none, and the share is of the partition's ε.
        share: of capacity used, exactly; None where a cap leaves no room at any coordinate. Of cap and quota, the
            fuller.
        over: whether it is frozen: over its cap or quota, or under one that leaves no room.
        quota: a lineage's share of the partition's capacity; None where there is none.
    """

    partition: str
    holder: str
    epsilon: Fraction | None
    share: Fraction | None
    over: bool
    quota: Fraction | None = None

    @property
    def percent(self) -> str:
        """The share for people, rounded up."""
        return "no room at all" if self.share is None else f"{ceil_decimal(100 * self.share, 1)} %"

    def to_json(self) -> c.Object:
        """As JSON."""
        return {
            "epsilon_max": None if self.epsilon is None else format_number(self.epsilon),
            "holder": self.holder,
            "over": self.over,
            "partition": self.partition,
            "share_max": None if self.quota is None else format_number(self.quota),
            "used": self.percent,
        }


def cap_of(facts: Facts, partition: Partition, holder: str, bounds: PartitionBounds) -> Fraction | None:
    """The cap on an account, None where it has none. A contract may set a smaller one for its own runs."""
    if holder == GLOBAL:
        return bounds.everyone
    own = _coalition_cap(facts, holder)
    return min(own or bounds.lineage, partition.epsilon)


def account_status(facts: Facts, account: Account, bounds: PartitionBounds | None) -> AccountStatus:
    """The status of a current or hypothetical account; without bounds it has no cap."""
    partition, holder = facts.partitions[account.partition], account.holder
    epsilon = cap_of(facts, partition, holder, bounds) if bounds else None
    loss = account_loss.counted_loss(facts, account)
    share, admitted = _used(partition, loss, partition.epsilon if epsilon is None else epsilon)
    over = epsilon is not None and not admitted
    if bounds is None or bounds.share is None or holder == GLOBAL or _coalition_cap(facts, holder) is not None:
        return AccountStatus(partition.ref, holder, epsilon, share, over)
    rule = read_rule(partition.terms)
    quota = rule.cap(partition.epsilon).part(bounds.share)
    fuller = None if share is None else max(share, rule.share(loss, quota))
    return AccountStatus(partition.ref, holder, epsilon, fuller, over or not rule.admits(loss, quota), bounds.share)


def accounts_over_cap(facts: Facts, now: int) -> Iterator[AccountStatus]:
    """Every frozen account: the global ones, those of each lineage with members, and of each coalition."""
    for ref, holder in sorted(facts.accounts):
        partition = facts.partitions[ref]
        bounds = partition_bounds(facts, partition, now)
        if bounds is None or not _counts(facts, holder):
            continue
        found = account_status(facts, facts.accounts[ref, holder], bounds)
        if found.over:
            yield found


def _counts(facts: Facts, holder: str) -> bool:
    """Whether an account counts: not of a lineage that all members have left, since the next one knows what it knew."""
    if holder == GLOBAL:
        return True
    node = facts.nodes[int(holder.partition(":")[2])]
    return node.kind is NodeKind.COALITION or bool(node.members)


def _coalition_cap(facts: Facts, holder: str) -> Fraction | None:
    node = facts.nodes.get(int(holder.partition(":")[2]))
    return node.epsilon if node and node.kind is NodeKind.COALITION else None


def _used(partition: Partition, loss: Loss, epsilon: Fraction) -> tuple[Fraction | None, bool]:
    """The share of a cap's capacity, None if it has none; and whether the rule admits the loss."""
    rule = read_rule(partition.terms)
    try:
        cap = rule.cap(epsilon)
    except NoRoom:
        return None, loss.empty
    return rule.share(loss, cap), rule.admits(loss, cap)


def empty_account(partition: Partition, holder: str) -> Account:
    """The account of a holder who has charged nothing."""
    zero = Loss.zero(len(read_rule(partition.terms).coordinates))
    return Account(partition.ref, holder, zero, zero)
