"""Points of a declared space, and the plan of a trial at one of them: none costs more than the charged plan."""

from __future__ import annotations

import secrets
from dataclasses import replace
from fractions import Fraction
from typing import Any

from msgspec import structs

from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_spec import Job
from trainer_adapter.job.tuning_terms import PLAN_MEMBERS, Point, Space


def draw_point(space: Space) -> Point:
    """Each member's value, drawn uniformly by itself from hardware entropy: no trial knows of another."""
    return {name: secrets.choice(values) for name, values in space.items()}


def plan_at(plan: Plan, point: Point) -> Plan:
    """The plan of a trial at a point: fewer records expected a step are drawn with a smaller probability.

    Raises:
        Malformed: for more records than the charged plan expects, which would cost more.
    """
    changes: dict[str, Any] = {name: point[name] for name in PLAN_MEMBERS if name in point}
    batch = changes.get("batch_size_expected", plan.batch_size_expected)
    if batch > plan.batch_size_expected:
        rule = f"holds {batch}, and the plan that is charged expects {plan.batch_size_expected} at most"
        raise Malformed("train.tuning.space.batch_size_expected", rule)
    probability = Fraction(plan.sampling_probability) * batch / plan.batch_size_expected
    return structs.replace(plan, sampling_probability=probability, **changes)


def job_at(job: Job, point: Point) -> Job:
    """The job of a trial at a point; its plan stays the one that is charged. Raises: Malformed."""
    changes: dict[str, Any] = {name: value for name, value in point.items() if name not in PLAN_MEMBERS}
    return replace(job, **changes)


def check_space(plan: Plan, space: Space) -> None:
    """Hold every value to the plan that is charged. Raises: Malformed, naming the member."""
    for name in PLAN_MEMBERS:
        for value in space.get(name, ()):
            plan_at(plan, {name: value})
