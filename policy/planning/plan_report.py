"""The report of a planned run, for the command line and for the service."""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from typing import TYPE_CHECKING

from ledger.commands.entry import Entry
from ledger.domain.facts import GLOBAL
from ledger.domain.gate import Check
from ledger.mechanisms.plan import Plan
from ledger.wire.records import Record
from policy.planning.account_caps import cap_of, partition_bounds
from policy.planning.burn_rate import Projection, projection
from policy.planning.counterfactuals import Advice, advise
from policy.planning.plan_search import (
    MoreRuns,
    blocking_checks,
    least_noise_admitted,
    most_steps_admitted,
    runs_that_fit,
)
from policy.planning.reported_values import Natural
from policy.planning.what_if import DecisionReport, WhatIf

if TYPE_CHECKING:
    from collections.abc import Callable


class StepsThatFit(Record, frozen=True):
    """How many steps of the plan would be admitted."""

    epochs: Fraction | None
    steps: Natural


class PlanReport(Record, frozen=True):
    """What a planned run would get now, how much of it fits, and what would pass instead."""

    advice: Advice | None
    blocked: tuple[Check, ...]
    decision: DecisionReport
    lasts: tuple[Projection, ...]
    noise_multiplier_least: Fraction | None
    runs: MoreRuns
    steps_most: StepsThatFit


def report(question: WhatIf, first: int, since: int) -> PlanReport:
    """The decision, what fits, what would change it, and how long the accounts last.

    Args:
        first: the index of the first entry at or after ``since`` (ms), from when on charges make the rate.
    """
    decision = question.decision
    return PlanReport(
        advice=None if decision.permit else advise(question),
        blocked=blocking_checks(question),
        decision=decision,
        lasts=tuple(lasts(question, first, since)),
        noise_multiplier_least=least_noise_admitted(question),
        runs=runs_that_fit(question),
        steps_most=_steps(question),
    )


def first_since(size: int, entry: Callable[[int], bytes], since: int) -> int:
    """The index of the first of ``size`` entries at or after a time (ms); entries are in order of time."""
    return bisect_left(range(size), since, key=lambda index: Entry.parse(entry(index)).time)


def _steps(question: WhatIf) -> StepsThatFit:
    steps, plan = most_steps_admitted(question), question.run.plan
    epochs = steps * plan.sampling_probability if isinstance(plan, Plan) else None
    # An epoch that is not whole is cut off, never rounded up.
    return StepsThatFit(None if epochs is None else Fraction(int(100 * epochs), 100), steps)


def lasts(question: WhatIf, first: int, since: int) -> list[Projection]:
    """How long the accounts of the run last at the recent rate of charges."""
    facts, found = question.facts, []
    for ref in question.run.partitions:
        partition = facts.partitions.get(ref)
        bounds = partition_bounds(facts, partition, question.now) if partition else None
        author = facts.organisations.get(question.run.actor)
        if partition is None or bounds is None or author is None:
            continue
        for holder in (GLOBAL, question.holder):
            cap = cap_of(facts, partition, holder, bounds)
            if cap is not None:
                found.append(projection(facts, ref, holder, cap, first, since, question.now))
    return found
