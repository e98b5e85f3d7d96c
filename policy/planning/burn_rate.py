"""The burn rate of an account: when it is exhausted if charges go on at the recent rate. A projection, no promise."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ledger.domain.facts import GLOBAL, Facts, Span
from ledger.domain.lineage_graph import END
from ledger.filters import NoRoom, read_rule
from ledger.lineage.exposure import known_spans
from ledger.mechanisms.loss import Loss
from ledger.transitions.account_loss import counted_loss
from ledger.wire import canonical_json as c
from policy.checks.field_readers import format_time
from policy.planning.account_caps import empty_account

HOUR_MS: Final = 3_600_000
HORIZON_HOURS: Final = 100 * 366 * 24
"""A hundred years; anything longer is reported as unlimited."""


@dataclass(frozen=True, slots=True)
class Projection:
    """How long an account lasts at the recent rate of charges.

    Attributes:
        since: the moment (ms) from which on charges make the rate, the partition's opening if that is later; what was
            voided since does not count.
        until: the last moment (ms), by whole hours, at which it would have room; None if it lasts beyond a hundred
            years, nothing was charged lately, or it has no room now.
        full: whether it has no room now.
    """

    partition: str
    holder: str
    since: int
    until: int | None
    full: bool

    def to_json(self) -> c.Object:
        """As JSON."""
        return {
            "full": self.full,
            "holder": self.holder,
            "partition": self.partition,
            "projected_until": None if self.until is None else format_time(self.until),
            "rate_since": format_time(self.since),
        }


def recent_loss(facts: Facts, ref: str, holder: str, first: int) -> Loss:
    """What an account was charged by entries from index ``first`` on, as it counts now."""
    if holder == GLOBAL:
        spans = [Span(node, first, END) for node in facts.nodes]
    else:
        whole = known_spans(facts.nodes, int(holder.partition(":")[2]), END)
        spans = [Span(one.author, max(one.first, first), one.before) for one in whole]
    partition = facts.partitions[ref]
    return sum((a + b for at, a, b in facts.exposures(spans) if at == ref), empty_account(partition, holder).posted)


def projection(  # noqa: PLR0913, PLR0917 - an account, its cap, and the stretch of time that makes the rate
    facts: Facts, ref: str, holder: str, epsilon: Fraction, first: int, since: int, now: int
) -> Projection:
    """Until when an account has room under a cap of ε, charged on as since ``since`` (ms, before ``now``).

    Args:
        first: the index of the first entry at or after ``since``.

    Raises:
        KeyError: if the partition is not on record.
    """
    partition = facts.partitions[ref]
    # A rate is of the time there was something to charge.
    since = max(since, partition.opened)
    rule = read_rule(partition.terms)
    account = facts.accounts.get((ref, holder)) or empty_account(partition, holder)
    counted, lately = counted_loss(facts, account), recent_loss(facts, ref, holder, first)
    try:
        cap = rule.cap(epsilon)
    except NoRoom:
        return Projection(ref, holder, since, None, full=True)

    def admits(hours: int) -> bool:
        return rule.admits(counted + _times(lately, Fraction(hours * HOUR_MS, max(1, now - since))), cap)

    if not admits(0):
        return Projection(ref, holder, since, None, full=True)
    low, high = 0, HORIZON_HOURS + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if admits(middle) else (low, middle)
    return Projection(ref, holder, since, None if low == HORIZON_HOURS else now + low * HOUR_MS, full=False)


def _times(loss: Loss, part: Fraction) -> Loss:
    """So many times a loss, rounded up; an infinite charge is infinite however little of it."""
    finite = tuple(-(-one * part.numerator // part.denominator) for one in loss.finite)
    return Loss(finite, tuple(one if part else 0 for one in loss.infinite))
