"""The status of a stream's slices in order, and the periods that were missed.

A slice is open only if nothing closes it for all lineages: it is not retired, not past its age, under a policy, and its
global account, where that is capped, has room: it is full where all of its capacity is used, and frozen where more is,
as it may be after the policy got tighter. The account of a single lineage may be closed in addition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from ledger.accounts.account_loss import counted_loss
from ledger.domain.facts import GLOBAL, Facts, Partition
from ledger.filters import read_rule
from policy.checks.calendar_periods import BY_HAND, period_before, period_of, periods_from, span_of, start_of
from policy.decisions.documents_in_force import binding, last_moment
from policy.decisions.streams_in_force import slices_of, stream_in_force

OPEN: Final = "open"
RETIRED: Final = "retired"
PAST_AGE: Final = "past_age"
FROZEN: Final = "frozen"
FULL: Final = "full"
MISSED: Final = "missed"
WITHOUT_POLICY: Final = "without_policy"
PARTITION_STATES: Final = (OPEN, RETIRED, PAST_AGE, FROZEN, FULL, WITHOUT_POLICY)
STATUSES: Final = (*PARTITION_STATES, MISSED)
CLOSED: Final = (RETIRED, PAST_AGE, WITHOUT_POLICY)
"""Statuses that no decree opens: nothing is charged there, even with room."""


@dataclass(frozen=True, slots=True)
class Slice:
    """One period of a stream.

    Attributes:
        partition: None if the period was missed.
        closes: the last time (ms) for a charge by its age; None if no age limit binds.
    """

    period: str
    status: str
    partition: Partition | None = None
    closes: int | None = None


def stream_slices(
    facts: Facts, provider: str, dataset: str, now: int, partitions: Iterable[Partition] | None = None
) -> tuple[Slice, ...]:
    """Every slice in the order of opening, and between them each period that was missed; empty without a stream.

    Args:
        partitions: those of the dataset, if they are known; else all are searched.
    """
    stream = stream_in_force(facts, provider, dataset)
    if stream is None:
        return ()
    every = facts.partitions.values() if partitions is None else partitions
    statuses = [slice_status(facts, partition, now) for partition in slices_of(facts, provider, dataset, every)]
    ordered: list[Slice] = []
    for status in statuses:
        ordered += [Slice(name, MISSED) for name in _between(stream.period, ordered, status.period)]
        ordered.append(status)
    return (*ordered, *(Slice(name, MISSED) for name in _missed_since(stream.period, ordered, now)))


def slice_status(facts: Facts, partition: Partition, now: int) -> Slice:
    """One partition as a slice at a time (ms); a plain partition is reported likewise."""
    name = partition.ref.rpartition("/")[2]
    binds = binding(facts, partition, now)
    closes = None if binds is None or binds.age_days_max is None else last_moment(partition, binds.age_days_max)
    if partition.retired:
        status = RETIRED
    elif binds is None:
        status = WITHOUT_POLICY
    elif closes is not None and now > closes:
        status = PAST_AGE
    else:
        status = _room(facts, partition) if binds.caps_everyone else OPEN
    return Slice(name, status, partition, closes)


def _room(facts: Facts, partition: Partition) -> str:
    """The status by the room in the capped global account."""
    account = facts.accounts.get((partition.ref, GLOBAL))
    if account is None:
        return OPEN
    rule, loss = read_rule(partition.terms), counted_loss(facts, account)
    cap = rule.cap(partition.epsilon)
    if not rule.admits(loss, cap):
        return FROZEN
    return FULL if rule.share(loss, cap) >= 1 else OPEN


def _between(kind: str, ordered: list[Slice], name: str) -> Iterator[str]:
    """The periods after the last slice and before another one."""
    start = start_of(kind, name)
    last = next((span for slice_ in reversed(ordered) if (span := span_of(slice_.period))), None)
    if kind == BY_HAND or start is None or last is None:
        return iter(())
    return (
        takewhile(lambda period: period != name, periods_from(kind, period_of(kind, last[1])))
        if last[1] < start
        else iter(())
    )


def _missed_since(kind: str, ordered: list[Slice], now: int) -> Iterator[str]:
    """The periods after the last slice in which none can open any more: those before the last complete one."""
    if kind == BY_HAND or not ordered:
        return iter(())
    return _between(kind, ordered, period_before(kind, period_of(kind, now)))
