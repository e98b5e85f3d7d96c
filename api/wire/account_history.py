"""The use of one account over its runs, without a replay, and how it would go on at the rate of the last weeks.

Each run counts as it counts now: a posted one by the steps that ran, a pending one in full. What was charged before the
runs that are listed is in every sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Final

from msgspec import Meta

from api.auth.authorisation import Caller
from api.http.field_types import Holder, Index, Ref, ReportedNumber, Steps, Time, one_of
from ledger.domain.charge_record import Charge
from ledger.domain.facts import GLOBAL, Partition, holder_of
from ledger.domain.outcomes import ChargeState
from ledger.filters import NoRoom, Rule, read_rule
from ledger.mechanisms.loss import Loss, loss_of
from ledger.organisation_lineage.holder_names import holder_name
from ledger.store.snapshot import Snapshot
from ledger.wire.exact_numbers import format_number
from ledger.wire.field_types import Did, Name
from ledger.wire.records import Record
from policy.checks.field_readers import DAY_MS
from policy.planning.account_caps import cap_of, empty_account, partition_bounds
from policy.planning.burn_rate import scaled
from policy.planning.streams.slice_status import CLOSED, slice_status

RUNS_MAX: Final = 200
"""Newest runs of one account that its history lists."""
RATE_DAYS: Final = 28
"""How far back posted runs make the rate of a forecast."""
WEEKS_MAX: Final = 26
"""So far a forecast looks ahead."""
_WEEK_MS: Final = 7 * DAY_MS
_RATE_MS: Final = RATE_DAYS * DAY_MS
_EPSILON = Annotated[ReportedNumber | None, Meta(description="at the partition's δ; null where none is proven")]


class HistoryRun(Record, frozen=True):
    """One run of an account, and the ε of all until then, as they count now."""

    actor: Did
    charge: Name
    epsilon: _EPSILON
    epsilon_posted: _EPSILON
    index: Index
    state: Annotated[str, one_of(*ChargeState)]
    steps: Steps
    steps_posted: Steps | None
    time: Time


class ForecastPoint(Record, frozen=True):
    """The ε at a time to come."""

    epsilon: _EPSILON
    time: Time


class Forecast(Record, frozen=True):
    """An extrapolation, and no promise: what was posted in the last weeks goes on at the same rate."""

    budget: ReportedNumber
    points: tuple[ForecastPoint, ...]
    rate_since: Time
    room_until: Annotated[Time | None, Meta(description="the last week's end with room; null beyond the last point")]


class AccountHistory(Record, frozen=True):
    """The newest runs of one account of a partition, oldest of them first."""

    complete: Annotated[bool, Meta(description="whether every run of the account is listed")]
    forecast: Forecast | None
    holder: Holder
    name: Annotated[str, Meta(description="whose account it is, in words")]
    partition: Ref
    runs: tuple[HistoryRun, ...]


@dataclass(frozen=True, slots=True)
class _Counted:
    """One run: its loss as it counts now, all of it or none of it settled."""

    charge: Charge
    time: int
    loss: Loss
    settled: bool


def account_history(
    facts: Snapshot, found: Partition, now: int, caller: Caller, newest: Sequence[Charge]
) -> AccountHistory:
    """The history that a caller may see: of everyone's account if it watches the partition, else of its own.

    Args:
        now: Unix milliseconds.
        newest: the newest charges to the partition, at most :data:`RUNS_MAX`, oldest of them first.
    """
    known = facts.organisations.get(caller.organisation)
    holder = GLOBAL if known is None or caller.watches(found) else holder_of(known.node)
    rule = read_rule(found.terms)
    counted = [*_counted(facts, found, [one for one in newest if caller.sees_charge(one, facts)])]
    zero = Loss.zero(len(rule.coordinates))
    account = facts.accounts.get((found.ref, holder)) if caller.watches(found) or holder != GLOBAL else None
    held = zero if account is None else account.loss
    shown = sum((one.loss for one in counted), zero)
    before = Loss(_left(held.finite, shown.finite), _left(held.infinite, shown.infinite))
    forecast = _forecast(facts, found, now, holder, before + shown, counted)
    return AccountHistory(
        complete=before.empty and len(newest) < RUNS_MAX,
        forecast=forecast,
        holder=holder,
        name=holder_name(facts, holder),
        partition=found.ref,
        runs=tuple(_runs(rule, before, counted)),
    )


def _left(whole: tuple[int, ...], part: tuple[int, ...]) -> tuple[int, ...]:
    """What is left of an account without the runs that are listed; never less than nothing."""
    return tuple(max(0, all_ - some) for all_, some in zip(whole, part, strict=True))


def _counted(facts: Snapshot, found: Partition, charges: Sequence[Charge]) -> Iterable[_Counted]:
    """The runs that count, each with its loss; one that was voided has drawn nothing."""
    begun = [one for one in charges if one.state is not ChargeState.VOIDED]
    times, zero = facts.times([one.index for one in begun]), Loss.zero(len(read_rule(found.terms).coordinates))
    for one in begun:
        steps = one.steps if one.steps_posted is None else one.steps_posted
        loss = loss_of(one.price_of(found.ref), steps) if steps else zero
        yield _Counted(one, times[one.index], loss, one.state is not ChargeState.PENDING)


def _runs(rule: Rule, before: Loss, counted: Iterable[_Counted]) -> Iterable[HistoryRun]:
    total = settled = before
    for one in counted:
        total += one.loss
        settled = settled + one.loss if one.settled else settled
        yield HistoryRun.project(
            one.charge,
            charge=one.charge.id,
            epsilon=_odometer(rule, total),
            epsilon_posted=_odometer(rule, settled),
            state=one.charge.state.value,
            time=one.time,
        )


# The sums after older runs are those of the last time, and each takes a millisecond.
@lru_cache(maxsize=4_096)
def _odometer(rule: Rule, loss: Loss) -> str | None:
    """The ε of a loss at the partition's δ; None where none is proven."""
    try:
        return format_number(rule.odometer(loss))
    except ArithmeticError:
        return None


def _forecast(  # noqa: PLR0913, PLR0917 - an account, its runs and the time
    facts: Snapshot, found: Partition, now: int, holder: str, total: Loss, counted: Sequence[_Counted]
) -> Forecast | None:
    """How the account goes on at the rate of what was posted lately; None without a rate, or where no run is taken."""
    rule, bounds = read_rule(found.terms), partition_bounds(facts, found, now)
    if found.retired or bounds is None or slice_status(facts, found, now).status in CLOSED:
        return None
    since = max(now - _RATE_MS, found.opened)
    # Where more runs are younger than are listed, the rate is of those: over a shorter time, so never too low.
    since = max(since, counted[0].time) if len(counted) == RUNS_MAX else since
    lately = sum(
        (one.loss for one in counted if one.settled and one.time >= since), empty_account(found, holder).posted
    )
    epsilon = min(cap_of(facts, found, holder, bounds) or found.epsilon, found.epsilon)
    try:
        cap = rule.cap(epsilon)
    except NoRoom:
        return None
    if lately.empty or not rule.admits(total, cap):
        return None
    points, until = [ForecastPoint(_odometer(rule, total), now)], None
    for week in range(1, WEEKS_MAX + 1):
        at = now + week * _WEEK_MS
        # A rate over less than a day says nothing of weeks: it is taken as if it were a day's.
        loss = total + scaled(lately, Fraction(week * _WEEK_MS, max(DAY_MS, now - since)))
        points.append(ForecastPoint(_odometer(rule, loss), at))
        if not rule.admits(loss, cap):
            until = points[-2].time
            break
        if bounds.closes is not None and at >= bounds.closes:
            until = bounds.closes
            break
    return Forecast(budget=format_number(epsilon), points=tuple(points), rate_since=since, room_until=until)
