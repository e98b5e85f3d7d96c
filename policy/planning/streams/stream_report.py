"""The report of a stream: its slices, the runs that its newest window has room for, and when slices close.

A consumer is shown the global account rounded up: the facts passed here are those that it is shown
 (:func:`policy.planning.shared_account.facts_as_shown`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Final

from msgspec import Meta

from ledger.accounts.pricing import COMPUTED, PricedRun
from ledger.commands.registration.partition import BlockPrices
from ledger.commands.runs.account_epsilon import odometer_epsilon
from ledger.domain.decision import Rejected
from ledger.domain.facts import GLOBAL, Contract, Facts, Partition
from ledger.filters import read_rule
from ledger.mechanisms.loss import loss_of
from ledger.mechanisms.run_plan import RunPlan
from ledger.wire.exact_numbers import ceil_decimal, format_number
from ledger.wire.field_types import Did, Name, Ref, Sha256, words
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record
from policy.checks.calendar_periods import (
    BY_HAND,
    MONTH,
    PERIODS,
    period_before,
    period_of,
    periods_from,
    span_of,
    start_of,
)
from policy.checks.field_readers import DAY_MS
from policy.decisions.last_run import LastRun
from policy.decisions.streams_in_force import shown_at_most, stream_in_force
from policy.documents.stream import StreamDocument
from policy.planning.account_figures import PartitionFigures
from policy.planning.reported_values import Moment, Natural, Percent
from policy.planning.streams.newest_window import newest_window
from policy.planning.streams.person_epsilon import person_epsilon
from policy.planning.streams.slice_status import OPEN, STATUSES, Slice, stream_slices

ALERT_DAYS: Final = (30, 7, 1)
"""The days before a slice closes from which on it is reported."""
MONTHS_AHEAD: Final = 12

Closes = Annotated[int, Meta(description="the last moment of a charge, by the slice's age")]
Exact = Annotated[str, Meta(description="an exact number, as a decimal or ratio")]
Rounded = Annotated[str, Meta(pattern=r"^[0-9]+\.[0-9]{4}$", description="four digits after the point, rounded up")]


class SliceReport(Record, frozen=True):
    """One slice, or a period that was missed, as a calendar shows it.

    Attributes:
        alert_days: the days until it closes; None if later than an alert, or if it is not open.
        odometer: the ε so far of the global account, rounded up; no decree reduces it.
        spent: the share of its budget that is used.
    """

    alert_days: Annotated[int, Meta(description="it closes within so many days")] | None
    closes: Closes | None
    odometer: Rounded | None
    opened: Moment | None
    partition: Ref | None
    period: Name
    spent: Percent | None
    starts: Annotated[int, Meta(description="the first moment of the period, in Unix milliseconds")] | None
    status: Annotated[str, words(*STATUSES)]


class WindowReport(Record, frozen=True):
    """The newest consecutive slices that a run may cover at a time, and how many runs like the last one fit.

    Attributes:
        at: the time (ms) of the report, as if nothing were charged or opened until then.
        binding: the constraint that binds or bars them; None before the first run.
        runs: None before the first run of the stream.
    """

    at: Moment
    binding: Annotated[str, Meta(description="what binds")] | None
    first: Name | None
    last: Name | None
    runs: Natural | None
    slices: Natural


class SliceTerms(Record, frozen=True):
    """The terms that the next slice opens with."""

    delta: Exact
    epsilon: Exact
    load: RunPlan | None
    prices: BlockPrices | None
    records_min: Natural
    relation: str
    rule: str
    slack: Exact | None
    unit: str
    unit_records_max: Natural | None


class StreamReport(Record, frozen=True):
    """A stream as reported to people.

    Attributes:
        budget_delta, budget_epsilon: what all slices may show of one person, or record; those of earlier versions too.
        last_complete: the newest period that is over; None where periods are by hand.
        may_open: the periods that a slice may open for now, the oldest first; empty where periods are by hand.
        months: the newest window at the first moment of each of the coming months.
        odometer: the most that all slices so far show of one, whatever was reset; None if it passes the budget.
        soundness: why a person's loss stays within the budget.
    """

    appearances_max: Natural
    budget_delta: Exact
    budget_epsilon: Exact
    dataset: Name
    document: Sha256
    last_complete: Name | None
    life_days: Natural
    may_open: tuple[Name, ...]
    months: tuple[WindowReport, ...]
    newest_window: WindowReport
    odometer: Rounded | None
    period: Annotated[str, words(*PERIODS)]
    persons: str
    provider: Did
    slice: SliceTerms
    slices: tuple[SliceReport, ...]
    soundness: str
    version: Natural
    window_max: Natural


@dataclass(frozen=True)
class StreamFigures:
    """The figures of one stream at a time, for the holder of one account.

    Attributes:
        facts: as shown to the reader.
        partitions: those of the dataset.
        last: the newest run on the stream that the reader knows of, and the contract of the next one like it.
    """

    facts: Facts
    provider: str
    dataset: str
    now: int
    partitions: Sequence[Partition]
    holder: str = GLOBAL
    last: PricedRun | None = None
    contract: Contract | None = None

    def report(self) -> StreamReport | None:
        """The whole report; None without a stream."""
        stream = stream_in_force(self.facts, self.provider, self.dataset)
        if stream is None:
            return None
        self.facts.fetch_accounts([partition.ref for partition in self.partitions], sorted({GLOBAL, self.holder}))
        slices = stream_slices(self.facts, self.provider, self.dataset, self.now, self.partitions)
        opened = [slice_.partition for slice_ in slices if slice_.partition is not None]
        most = shown_at_most(self.facts, self.provider, self.dataset, opened)
        epsilon, delta = stream.slice_budget
        return StreamReport(
            appearances_max=stream.appearances_max,
            budget_delta=format_number(most.delta),
            budget_epsilon=format_number(most.epsilon),
            dataset=self.dataset,
            document=self.facts.streams[self.provider, self.dataset][-1].document,
            last_complete=_last_complete(stream, self.now),
            life_days=stream.life_days,
            may_open=_may_open(stream, slices, self.now),
            months=tuple(self._window(slices, at) for at in _months(self.now)),
            newest_window=self._window(slices, self.now),
            odometer=self._odometer(stream, opened),
            period=stream.period,
            persons=stream.persons,
            provider=self.provider,
            slice=SliceTerms(
                delta=format_number(delta),
                epsilon=format_number(epsilon),
                load=stream.load,
                prices=stream.prices,
                records_min=stream.records_min,
                relation=stream.relation,
                rule=stream.rule,
                slack=None if stream.slack is None else format_number(stream.slack),
                unit=stream.unit,
                unit_records_max=stream.unit_records_max,
            ),
            slices=tuple(map(self._slice, slices)),
            soundness=stream.soundness(most),
            version=stream.version,
            window_max=stream.window_max,
        )

    def _slice(self, slice_: Slice) -> SliceReport:
        partition = slice_.partition
        starts = next((at for kind in PERIODS if (at := start_of(kind, slice_.period)) is not None), None)
        open_until = slice_.closes if slice_.status == OPEN else None
        soon = [days for days in ALERT_DAYS if open_until is not None and open_until - self.now <= days * DAY_MS]
        spent, odometer = None, None
        if partition is not None:
            account, rule = self.facts.accounts.get((partition.ref, GLOBAL)), read_rule(partition.terms)
            used = Fraction(0) if account is None else rule.share(account.loss, rule.cap(partition.epsilon))
            spent, epsilon = Percent.of(used), self._epsilon(partition)
            odometer = None if epsilon is None else ceil_decimal(epsilon, 4)
        return SliceReport(
            alert_days=min(soon, default=None),
            closes=slice_.closes,
            odometer=odometer,
            opened=None if partition is None else partition.opened,
            partition=None if partition is None else partition.ref,
            period=slice_.period,
            spent=spent,
            starts=starts,
            status=slice_.status,
        )

    def _epsilon(self, partition: Partition) -> Fraction | None:
        account = self.facts.accounts.get((partition.ref, GLOBAL))
        return Fraction(0) if account is None else odometer_epsilon(self.facts, account).epsilon

    def _odometer(self, stream: StreamDocument, opened: Sequence[Partition]) -> str | None:
        epsilon = person_epsilon(stream, [(partition, self._epsilon(partition)) for partition in opened])
        return None if epsilon is None else ceil_decimal(epsilon, 4)

    def _window(self, slices: Sequence[Slice], at: int) -> WindowReport:
        """The newest slices that one run may cover at a time (ms)."""
        inside = newest_window(self.facts, slices, at)
        names = [partition.ref.rpartition("/")[2] for partition in inside]
        runs, binds = self._runs(inside, at)
        ends = (names[0], names[-1]) if names else (None, None)
        return WindowReport(at=at, binding=binds, first=ends[0], last=ends[1], runs=runs, slices=len(inside))

    def _runs(self, inside: Sequence[Partition], at: int) -> tuple[int | None, str | None]:
        """How many more runs like the last one fit in all of these together, and what binds them."""
        if self.last is None or not inside:
            return (None, None) if self.last is None else (0, "no slice is open")
        fewest: tuple[int, str | None] | None = None
        for partition in inside:
            try:
                loss = loss_of(COMPUTED.price(partition, self.last), self.last.plan.steps)
            except (Malformed, Rejected) as error:
                return 0, f"{partition.ref}: {error}"
            run = LastRun(loss, self.last.plan, self.last.unit_records_max)
            figures = PartitionFigures.at(self.facts, partition, at, run).of(self.holder, self.contract)
            if figures.runs is None:
                continue
            words_ = f"{partition.ref.rpartition('/')[2]}: {figures.closed or figures.binding}"
            if fewest is None or figures.runs < fewest[0]:
                fewest = figures.runs, words_
        return (None, "nothing is capped") if fewest is None else fewest


def _last_complete(stream: StreamDocument, now: int) -> str | None:
    return None if stream.period == BY_HAND else period_before(stream.period, period_of(stream.period, now))


def _may_open(stream: StreamDocument, slices: Sequence[Slice], now: int) -> tuple[str, ...]:
    if stream.period == BY_HAND:
        return ()
    current = period_of(stream.period, now)
    both = (period_before(stream.period, current), current)
    ends = (
        span[1]
        for candidate in reversed(slices)
        if candidate.partition is not None and (span := span_of(candidate.period))
    )
    # A skipped period stays missed: only periods after the newest slice open.
    newest = next(ends, None)
    return tuple(
        candidate for candidate in both if newest is None or (start_of(stream.period, candidate) or 0) >= newest
    )


def _months(now: int) -> list[int]:
    """The start of each of the coming months."""
    names = periods_from(MONTH, period_of(MONTH, now))
    next(names)
    starts = (start_of(MONTH, name) for name, _ in zip(names, range(MONTHS_AHEAD), strict=False))
    return [start for start in starts if start is not None]
