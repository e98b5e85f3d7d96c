"""The burn rate of an account: when it is exhausted if charges go on at the recent rate. Only a projection."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from ledger.accounts.account_loss import counted_loss
from ledger.domain.facts import GLOBAL, Facts, Span
from ledger.domain.organisation_graph import END
from ledger.filters import NoRoom, read_rule
from ledger.mechanisms.loss import Loss
from ledger.organisation_lineage.exposure import known_spans
from ledger.organisation_lineage.holder_names import holder_name
from ledger.wire.field_types import Ref
from ledger.wire.records import Record
from policy.checks.field_readers import HOUR_MS
from policy.planning.account_caps import empty_account
from policy.planning.reported_values import Holder, Moment, WhoseAccount

HORIZON_HOURS: Final = 100 * 366 * 24
"""A hundred years; anything longer is reported as unlimited."""


class Projection(Record, frozen=True):
    """How long an account lasts at the recent rate of charges.

    Attributes:
        full: whether it has no room now.
        projected_until: the last time, by whole hours, at which it would have room, or at which the partition's age
            permits a charge, if that is earlier; None if it lasts beyond a hundred years, or it has no room now.
        rate_since: the time from which charges count for the rate, or the partition's opening if that is later;
            voided charges do not count.
    """

    full: bool
    holder: Holder
    name: WhoseAccount
    partition: Ref
    projected_until: Moment | None
    rate_since: Moment


def recent_loss(facts: Facts, ref: str, holder: str, first: int) -> Loss:
    """The loss charged to an account by entries from index ``first`` on, as it counts now."""
    if holder == GLOBAL:
        spans = [Span(node, first, END) for node in facts.nodes]
    else:
        whole = known_spans(facts.nodes, int(holder.partition(":")[2]), END)
        spans = [Span(span.author, max(span.first, first), span.before) for span in whole]
    partition = facts.partitions[ref]
    return sum((a + b for at, a, b in facts.exposures(spans) if at == ref), empty_account(partition, holder).posted)


def projection(  # noqa: PLR0913, PLR0917 - an account, its cap, and the stretch of time that makes the rate
    facts: Facts, ref: str, holder: str, epsilon: Fraction, first: int, since: int, now: int
) -> Projection:
    """How long an account has room under a cap of ε, at the rate since ``since`` (ms, before ``now``).

    Args:
        first: the index of the first entry at or after ``since``.

    Raises:
        KeyError: if the partition is not registered.
    """
    partition = facts.partitions[ref]
    # The rate is over the time in which the partition could be charged.
    since = max(since, partition.opened)
    rule = read_rule(partition.terms)
    account = facts.accounts.get((ref, holder)) or empty_account(partition, holder)
    loss, lately = counted_loss(facts, account), recent_loss(facts, ref, holder, first)
    name = holder_name(facts, holder)
    try:
        cap = rule.cap(epsilon)
    except NoRoom:
        return Projection(full=True, holder=holder, name=name, partition=ref, projected_until=None, rate_since=since)

    def admits(hours: int) -> bool:
        return rule.admits(loss + scaled(lately, Fraction(hours * HOUR_MS, max(1, now - since))), cap)

    full = not admits(0)
    low, high = 0, 1 if full else HORIZON_HOURS + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if admits(middle) else (low, middle)
    until = None if full or low == HORIZON_HOURS else now + low * HOUR_MS
    return Projection(full=full, holder=holder, name=name, partition=ref, projected_until=until, rate_since=since)


def scaled(loss: Loss, part: Fraction) -> Loss:
    """A loss times a fraction, rounded up; any part of an infinite charge is infinite."""
    finite = tuple(-(-units * part.numerator // part.denominator) for units in loss.finite)
    return Loss(finite, tuple(count if part else 0 for count in loss.infinite))
