"""Alerts: which shares of a capacity a charge crosses, on the global account and on its own lineage's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ledger.accounts.account_loss import counted_loss
from ledger.accounts.pricing import Bound, PriceSource
from ledger.domain.facts import GLOBAL, Facts, Partition, holder_of
from ledger.domain.gate import Caps
from ledger.filters import read_rule
from ledger.mechanisms.loss import Loss, Segment, loss_of
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number


def crossed(  # noqa: PLR0913, PLR0917 - a charge, and what it is laid on
    facts: Facts,
    partitions: Sequence[Partition],
    caps: Mapping[str, Caps],
    prices: Mapping[str, tuple[Segment, ...]],
    steps: int,
    author: int,
    numbers: PriceSource,
) -> list[c.Json]:
    """Each share that the used part of an account is below before the charge, and at or above afterwards.

    The global account is compared with the partition's own budget, capped or only watched.
    """
    found: list[c.Json] = []
    for partition in partitions:
        bound = caps[partition.ref]
        rule = read_rule(partition.terms)
        for holder, epsilon in ((GLOBAL, partition.epsilon), (holder_of(author), bound.lineage)):
            if not bound.alerts:
                break
            cap, account = (
                numbers.watched(Bound(partition, holder, epsilon)),
                facts.accounts.get((partition.ref, holder)),
            )
            before = counted_loss(facts, account) if account else Loss.zero(len(rule.coordinates))
            after = before + loss_of(prices[partition.ref], steps)
            low, high = rule.share(before, cap), rule.share(after, cap)
            passed = [share for share in bound.alerts if low < share <= high]
            found += [{"holder": holder, "partition": partition.ref, "share": format_number(one)} for one in passed]
    return found
