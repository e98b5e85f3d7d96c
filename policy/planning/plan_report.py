"""The report of a planned run: its decision, what fits, and the smallest change that would be admitted.

Counterfactuals of a refused run, in steps, noise or partition, are computed after the refusal is committed, outside
the writer. Each is the least change of its kind and was itself decided on the same facts; people choose between them.
To a consumer that is shown shared accounts rounded, those of a partition in place of a requested one are rounded too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final

from msgspec import structs

from ledger.accounts.run_epsilon import RunEpsilon
from ledger.commands.runs.charge_entry import LISTED_MAX
from ledger.domain.decision import Rejected
from ledger.domain.facts import GLOBAL, Partition
from ledger.domain.gate import Check
from ledger.domain.outcomes import Code
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.run_plan import RunPlan
from ledger.wire.field_types import Ref
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record
from policy.planning.account_caps import cap_of, partition_bounds
from policy.planning.burn_rate import Projection, projection
from policy.planning.plan_search import (
    MoreRuns,
    blocking_checks,
    least_noise_admitted,
    most_steps_admitted,
    runs_that_fit,
)
from policy.planning.reported_values import Natural
from policy.planning.shared_account import UNCERTAIN, ShownStates, first_charge_warning
from policy.planning.streams.slice_status import OPEN, slice_status
from policy.planning.what_if import DecisionReport, WhatIf

PROBES: Final = 128
"""Entries whose times are read at once: of a million entries one is found in three statements."""
CANDIDATES_MAX: Final = 64
"""How many other partitions are tried; the report gives the number of the rest."""


ShownOn = Callable[[Sequence[Partition]], ShownStates | None]
"""The states with the shared accounts of these partitions as a consumer is shown them; None if all are exact."""


class Swap(Record, frozen=True):
    """Another partition of the same dataset, in place of a requested one."""

    instead: Ref
    of: Ref


class Advice(Record, frozen=True):
    """The smallest changes that would pass, each by itself.

    Attributes:
        blocked: checks that fail for every noise and number of steps.
        noise_multiplier: the least that would be charged, to four decimals; None if none would, or the run passes.
        partitions: those that would be admitted in place of a requested one.
        partitions_untried: how many other partitions of the same datasets were not tried.
        steps: the most steps that would be charged; None likewise.
    """

    blocked: tuple[Check, ...]
    noise_multiplier: Fraction | None
    partitions: tuple[Swap, ...]
    partitions_untried: Natural
    steps: Natural | None


class StepsThatFit(Record, frozen=True):
    """How many steps of the plan would be admitted."""

    epochs: Fraction | None
    steps: Natural


class PlanReport(Record, frozen=True):
    """The decision that a planned run would get now, how much of it fits, and what would pass instead.

    Attributes:
        run_epsilon: of the whole run, one line a partition; absent where it has no price.
    """

    advice: Advice | None
    blocked: tuple[Check, ...]
    decision: DecisionReport
    lasts: tuple[Projection, ...]
    noise_multiplier_least: Fraction | None
    runs: MoreRuns
    steps_most: StepsThatFit
    run_epsilon: tuple[RunEpsilon, ...] = ()


def report(
    question: WhatIf, first: int, since: int, shown_on: ShownOn | None = None, *, search: bool = True
) -> PlanReport:
    """The decision, what fits, what would change it, and how long the accounts last.

    Args:
        first: the index of the first entry at or after ``since`` (ms), from when on charges count for the rate.
        shown_on: gives the states that may be shown to the consumer, in place of the exact one; then of an account
            that is shared with others no rate is shown. Called for the requested partitions, and for a refused run
            together with those that are tried in place of one.
        search: whether to look for other plans; if not, of a run that would be admitted no other noise or number of
            steps is reported than its own. For groups of records such a search takes many seconds.
    """
    shown = None if shown_on is None else shown_on(question.partitions)
    seen_as = question if shown is None else replace(question, facts=shown.most)
    least = question if shown is None else replace(question, facts=shown.least)
    decision = seen_as.decision if shown is None else _uncertain(seen_as.decision, least)
    if decision.permit and not decision.detail:
        decision = structs.replace(decision, detail=first_charge_warning(question.partitions))
    own = not search and decision.permit
    return PlanReport(
        advice=None if decision.permit else advise(seen_as, shown_on),
        blocked=blocking_checks(least),
        decision=decision,
        lasts=tuple(
            last
            for last in _lasts(seen_as, _accounts_to_project(seen_as), first, since)
            if shown is None or last.holder != GLOBAL
        ),
        noise_multiplier_least=None if own else least_noise_admitted(seen_as),
        runs=runs_that_fit(seen_as),
        steps_most=_as_epochs(seen_as.run.plan, seen_as.run.plan.steps) if own else _steps(seen_as),
        run_epsilon=question.run_epsilon,
    )


def _uncertain(decision: DecisionReport, least: WhatIf) -> DecisionReport:
    """The decision with the most that others may have used; an uncertain permit where with the least it would fit."""
    if decision.outcome != Code.BUDGET_EXHAUSTED.word or not least.is_admitted:
        return decision
    checks = tuple(check if check.passed else _open(check) for check in decision.checks)
    fullest = next((new for old, new in zip(decision.checks, checks, strict=True) if not old.passed), None)
    return DecisionReport(fullest, checks, UNCERTAIN, Code.PENDING.word)


def _open(check: Check) -> Check:
    text = f"{check.text}; by less than others are rounded up it may have room"
    return structs.replace(check, passed=True, text=text)


def first_since(size: int, times: Callable[[Sequence[int]], Mapping[int, int]], since: int) -> int:
    """The index of the first of ``size`` entries at or after a time (ms); entries are in order of time.

    Args:
        times: the times of some entries by their indexes, in one statement.
    """
    first, last = 0, size
    while first < last:
        probes = range(first, last, -(-(last - first) // PROBES))
        place = bisect_left(probes, since, key=times([*probes]).__getitem__)
        last = probes[place] if place < len(probes) else last
        first = probes[place - 1] + 1 if place else first
    return first


def _steps(question: WhatIf) -> StepsThatFit:
    return _as_epochs(question.run.plan, most_steps_admitted(question))


def _as_epochs(plan: RunPlan, steps: int) -> StepsThatFit:
    epochs = steps * plan.sampling_probability if isinstance(plan, Plan) else None
    # A fraction of an epoch is truncated, never rounded up.
    return StepsThatFit(None if epochs is None else Fraction(int(100 * epochs), 100), steps)


def _lasts(question: WhatIf, refs: tuple[str, ...], first: int, since: int) -> Iterator[Projection]:
    """How long the run's accounts on these partitions last at the recent rate; of a closed one, those that are full."""
    facts = question.facts
    for ref in refs:
        partition = facts.partitions.get(ref)
        bounds = partition_bounds(facts, partition, question.now) if partition else None
        author = facts.organisations.get(question.run.actor)
        if partition is None or bounds is None or author is None:
            continue
        closed = slice_status(facts, partition, question.now).status != OPEN
        for holder in (GLOBAL, question.holder):
            cap = cap_of(facts, partition, holder, bounds)
            if cap is not None:
                forecast = projection(facts, ref, holder, cap, first, since, question.now)
                ends = [time for time in (forecast.projected_until, bounds.closes) if time is not None]
                if forecast.full or not closed:
                    yield (
                        forecast
                        if forecast.full
                        else structs.replace(forecast, projected_until=min(ends, default=None))
                    )


def _accounts_to_project(question: WhatIf) -> tuple[str, ...]:
    """The partitions whose accounts a report projects; of those in ranges, as many as may be listed, the fullest.

    The choice reveals something about their accounts, so it is made on the state as shown to the caller.
    """
    if not question.run.ranges:
        return question.run.partitions
    try:
        rooms = sorted(question.rooms(question.run.plan), key=lambda room: room.used, reverse=True)
    except (Rejected, Malformed, KeyError):
        return question.run.partitions
    return (*dict.fromkeys(room.limit.partition for room in rooms),)[:LISTED_MAX]


def advise(question: WhatIf, shown_on: ShownOn | None = None) -> Advice:
    """The smallest change of each kind. Slow: it prices new plans.

    Args:
        question: on the state that is shown of the requested partitions.
        shown_on: as of :func:`report`.
    """
    if question.is_admitted:
        return Advice((), None, (), 0, None)
    steps = most_steps_admitted(question, question.run.plan.steps)
    swaps, untried = _swaps(question, shown_on)
    return Advice(blocking_checks(question), least_noise_admitted(question), swaps, untried, steps or None)


def _swaps(question: WhatIf, shown_on: ShownOn | None) -> tuple[tuple[Swap, ...], int]:
    requested, facts = question.run.partitions, question.facts
    datasets = {
        (partition.provider, partition.dataset) for ref in requested if (partition := facts.partitions.get(ref))
    }
    orders = [facts.opening_order(f"{provider}/{name}").refs for provider, name in sorted(datasets)]
    others = [
        partition
        for ref in sorted(ref for refs in orders for ref in refs)
        if ref not in requested and not (partition := facts.partitions[ref]).retired
    ]
    candidates = others[:CANDIDATES_MAX]
    # A swap that is listed by the exact account of a candidate would show what others used of it, to the step.
    shown = shown_on((*question.partitions, *candidates)) if shown_on and candidates else None
    tried = question if shown is None else replace(question, facts=shown.most)
    swaps = []
    for place, ref in enumerate(requested):
        mine = facts.partitions.get(ref)
        for partition in candidates if mine else ():
            same = mine and (mine.provider, mine.dataset) == (partition.provider, partition.dataset)
            tried.proceed()
            changed = (*requested[:place], partition.ref, *requested[place + 1 :])
            if same and replace(tried, run=structs.replace(tried.run, partitions=changed)).is_admitted:
                swaps.append(Swap(instead=partition.ref, of=ref))
    return tuple(swaps), len(others) - len(candidates)
