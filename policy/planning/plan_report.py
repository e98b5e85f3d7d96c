"""The report of a planned run as one JSON object, for the command line and for the service."""

from __future__ import annotations

from fractions import Fraction

from ledger.domain.facts import GLOBAL
from ledger.mechanisms.plan import Plan
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import ceil_decimal, format_number
from policy.planning.account_caps import cap_of, partition_bounds
from policy.planning.burn_rate import Projection, projection
from policy.planning.counterfactuals import advise
from policy.planning.plan_search import (
    RUNS_MAX,
    MoreRuns,
    blocking_checks,
    least_noise_admitted,
    most_steps_admitted,
    runs_that_fit,
)
from policy.planning.what_if import WhatIf


def report(question: WhatIf, first: int, since: int) -> c.Object:
    """The decision, what fits, what would change it, and how long the accounts last.

    Args:
        first: the index of the first entry at or after ``since`` (ms), from when on charges make the rate.
    """
    decision = question.decision
    runs = runs_that_fit(question)
    return {
        "advice": None if decision.permit else advise(question).to_json(),
        "blocked": [check.to_json() for check in blocking_checks(question)],
        "decision": decision.to_json(),
        "lasts": [one.to_json() for one in lasts(question, first, since)],
        "noise_multiplier_least": _number(least_noise_admitted(question)),
        "runs": runs_json(runs),
        "steps_most": _steps(question),
    }


def runs_json(runs: MoreRuns) -> c.Object:
    """How many more such runs fit, as it is shown."""
    accounts: list[c.Json] = [
        {
            "holder": one.holder,
            "partition": one.partition,
            "runs": one.runs,
            "used": f"{ceil_decimal(100 * one.share, 1)} %",
        }
        for one in runs.accounts
    ]
    binding = runs.then.binding
    return {
        "accounts": accounts,
        "binding": binding.to_json() if binding else None,
        "more": runs.runs,
        "or_more": runs.runs == RUNS_MAX,
    }


def _steps(question: WhatIf) -> c.Object:
    steps, plan = most_steps_admitted(question), question.run.plan
    epochs = steps * plan.sampling_probability if isinstance(plan, Plan) else None
    # An epoch that is not whole is cut off, never rounded up.
    whole = None if epochs is None else format_number(Fraction(int(100 * epochs), 100))
    return {"epochs": whole, "steps": steps}


def _number(number: Fraction | None) -> str | None:
    return None if number is None else format_number(number)


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
