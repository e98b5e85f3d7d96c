"""The bounds in force for a partition, and the status of its accounts under their caps, as numbers."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated

from msgspec import Meta

from ledger.accounts import account_loss
from ledger.accounts.headroom import is_infinite
from ledger.domain.facts import GLOBAL, Account, Facts, Partition
from ledger.domain.organisation_graph import NodeKind
from ledger.filters import NoRoom, read_rule
from ledger.mechanisms.loss import Loss
from ledger.organisation_lineage.holder_names import holder_name
from ledger.wire.exact_numbers import equal_part
from ledger.wire.field_types import Ref
from ledger.wire.records import Record
from policy.checks.field_readers import DAY_MS
from policy.decisions.documents_in_force import binding
from policy.documents import RunBounds
from policy.planning.reported_values import Holder, Moment, Percent, WhoseAccount

Quota = Annotated[Fraction, Meta(description="the quota of a lineage, of the partition's capacity")]


class PartitionBounds(Record, frozen=True):
    """The bounds that policies set on one partition.

    Attributes:
        closes: the last time for a charge, by the partition's age; None if it has no age limit.
        epsilon_max: the cap on the global account; None if it has none.
        lineage_epsilon_max: the cap on each lineage; a contract may set a smaller one.
        run_epsilon_max: the cap on one run, likewise; ``run`` has its other bounds.
        source: the policy in force.
        appearances_max: in how many slices of its stream a person may be. The caps above are such parts of those that
            documents state for one person.
    """

    closes: Moment | None
    epsilon_max: Fraction | None
    level: Annotated[int, Meta(ge=0, le=2, description="of sensitivity")]
    lineage_epsilon_max: Fraction
    pipeline: Annotated[bool, Meta(description="whether a charge must name its pipeline")]
    run: RunBounds
    run_epsilon_max: Fraction
    share_max: Quota | None
    source: str
    appearances_max: Annotated[int, Meta(ge=1, description="slices of its stream that a person may be in")] = 1


def partition_bounds(facts: Facts, partition: Partition, now: int) -> PartitionBounds | None:
    """The bounds of a partition at a time (ms), None without a policy in force."""
    binds = binding(facts, partition, now)
    if binds is None:
        return None
    days = binds.age_days_max
    return PartitionBounds(
        closes=None if days is None else partition.opened + days * DAY_MS,
        epsilon_max=partition.epsilon if binds.caps_everyone else None,
        level=binds.level,
        lineage_epsilon_max=min(binds.lineage_epsilon_max, partition.epsilon),
        pipeline=binds.policy.pipeline,
        run=binds.parts.policy_bounds(binds.policy, partition.epsilon),
        run_epsilon_max=binds.parts.of(binds.policy.run.epsilon_max),
        share_max=binds.policy.share_max,
        source=binds.policy.source,
        appearances_max=binds.parts.appearances,
    )


class AccountStatus(Record, frozen=True):
    """One account under its cap and quota, pending counted in full; over them it is frozen.

    Attributes:
        epsilon_max: the cap; None if there is none: then the share is of the partition's ε.
        over: whether it is frozen: over its cap or quota, or under one that leaves no room.
        used: of capacity; of cap and quota, the fuller.
    """

    epsilon_max: Fraction | None
    holder: Holder
    name: WhoseAccount
    over: bool
    partition: Ref
    share_max: Quota | None
    used: Percent


def cap_of(facts: Facts, partition: Partition, holder: str, bounds: PartitionBounds) -> Fraction | None:
    """The cap on an account, None where it has none. A contract may set a smaller one for its own runs."""
    if holder == GLOBAL:
        return bounds.epsilon_max
    own = _coalition_cap(facts, holder)
    return min(equal_part(own, bounds.appearances_max) if own else bounds.lineage_epsilon_max, partition.epsilon)


def account_status(facts: Facts, account: Account, bounds: PartitionBounds | None) -> AccountStatus:
    """The status of a current or hypothetical account; without bounds it has no cap."""
    partition, holder = facts.partitions[account.partition], account.holder
    epsilon = cap_of(facts, partition, holder, bounds) if bounds else None
    loss = account_loss.counted_loss(facts, account)
    rule = read_rule(partition.terms)
    share, admitted = _used_share(partition, loss, partition.epsilon if epsilon is None else epsilon)
    over = epsilon is not None and not admitted
    quota = bounds.share_max if bounds and holder != GLOBAL and _coalition_cap(facts, holder) is None else None
    if quota is not None:
        part = rule.cap(partition.epsilon).part(quota)
        share = None if share is None else max(share, rule.share(loss, part))
        over = over or not rule.admits(loss, part)
    infinite = is_infinite(rule, loss, rule.cap(partition.epsilon))
    used = Percent.infinite() if infinite else Percent.of(share)
    return AccountStatus(epsilon, holder, holder_name(facts, holder), over, partition.ref, quota, used)


def accounts_over_cap(facts: Facts, now: int) -> Iterator[AccountStatus]:
    """Every frozen account: the global ones, those of each lineage with members, and of each coalition."""
    for ref, holder in sorted(facts.accounts):
        partition = facts.partitions[ref]
        bounds = partition_bounds(facts, partition, now)
        if bounds is None or not _counts(facts, holder):
            continue
        status = account_status(facts, facts.accounts[ref, holder], bounds)
        if status.over:
            yield status


def _counts(facts: Facts, holder: str) -> bool:
    """Whether an account counts: not if all members have left its lineage, since their next one knows what it knew."""
    if holder == GLOBAL:
        return True
    node = facts.nodes[int(holder.partition(":")[2])]
    return node.kind is NodeKind.COALITION or bool(node.members)


def _coalition_cap(facts: Facts, holder: str) -> Fraction | None:
    node = facts.nodes.get(int(holder.partition(":")[2]))
    return node.epsilon if node and node.kind is NodeKind.COALITION else None


def _used_share(partition: Partition, loss: Loss, epsilon: Fraction) -> tuple[Fraction | None, bool]:
    """The share of a cap's capacity, None if it has none; and whether the rule admits the loss."""
    rule = read_rule(partition.terms)
    try:
        cap = rule.cap(epsilon)
    except NoRoom:
        return None, loss.empty
    return rule.share(loss, cap), rule.admits(loss, cap)


def empty_account(partition: Partition, holder: str) -> Account:
    """The account of a holder that has charged nothing."""
    zero = Loss.zero(len(read_rule(partition.terms).coordinates))
    return Account(partition.ref, holder, zero, zero)
