"""The ε of a run against an adversary that stops it: the exact worst loss over every rule of when to stop."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from statistics import NormalDist

import pytest

from ledger.accounts.run_epsilon import greatest, run_epsilon
from ledger.domain.facts import Partition
from ledger.mechanisms.mechanism import AnyMechanism, Composed, PoissonGaussian, RandomisedResponse
from ledger.mechanisms.plan import MechanismPlan, Plan
from ledger.mechanisms.run_plan import RunPlan

RELATION = "REPLACE_SPECIAL"
NEAR = 1e-9
"""What adding floats in another order may change of a δ, relatively."""
Step = tuple[tuple[float, float], ...]
"""Of each output the probability with the unit, and without it."""


@dataclass(frozen=True)
class Run:
    """A run to be priced."""

    plan: RunPlan
    unit_records_max: int | None = None


def partition(delta: Fraction, name: str = "2026-q4", unit: str = "record", records: int = 1) -> Partition:
    """A partition at this δ; of its rule nothing is asked."""
    return Partition(
        ref=f"did:web:hospital.example/digits/{name}",
        provider="did:web:hospital.example",
        dataset="digits",
        epsilon=Fraction(4),
        delta=delta,
        relation=RELATION,
        unit=unit,
        unit_records_max=records,
        records=1_000,
        data_key="k",
        terms="",
        opened=0,
        retired=False,
        index=0,
    )


def cells(mechanism: AnyMechanism, cuts: Sequence[float]) -> list[Step]:
    """Its steps as an adversary sees them: an answer of randomised response, or in which cell a noisy sum fell."""
    if isinstance(mechanism, RandomisedResponse):
        buckets, noise = mechanism.buckets, float(mechanism.noise)
        true = 1 - noise + noise / buckets
        # Without the record any answer is as likely as any other; all but the record's own are seen as one.
        return [((true, 1 / buckets), (1 - true, 1 - 1 / buckets))]
    assert isinstance(mechanism, PoissonGaussian)
    q, normal = float(mechanism.probability), NormalDist(0, float(mechanism.noise_multiplier))
    ends = (-math.inf, *cuts, math.inf)

    def inside(mean: float) -> list[float]:
        below = [0.0 if end == -math.inf else 1.0 if end == math.inf else normal.cdf(end - mean) for end in ends]
        return [high - low for low, high in pairwise(below)]

    without = inside(0.0)
    drawn = [(1 - q) * no + q * yes for no, yes in zip(without, inside(1.0), strict=True)]
    return [tuple(zip(drawn, without, strict=True))] * mechanism.steps


def reached(steps: Sequence[Step], reported: Sequence[float], p: float = 1.0, q: float = 1.0) -> float:
    """The greatest δ over all rules that stop the run by its outputs, if ``told[k]`` is told after ``k`` steps.

    A stop ends with P(outputs so far) - e^told Q(the same), where that is positive; going on, with the sum over the
    next outputs of what is best after each.
    """
    stop = max(0.0, p - math.exp(reported[0]) * q)
    if not steps:
        return stop
    return max(stop, sum(reached(steps[1:], reported[1:], p * one, q * other) for one, other in steps[0]))


def worst(steps: Sequence[Step], reported: Sequence[float]) -> float:
    """The greater of both directions."""
    return max(reached(steps, reported), reached([tuple((b, a) for a, b in step) for step in steps], reported))


def drawn(choose: random.Random) -> tuple[AnyMechanism, list[Step]]:
    """A small library's plan, and its steps."""
    parts: list[AnyMechanism] = []
    steps: list[Step] = []
    while len(steps) < 4:
        if choose.random() < 0.5:
            noise = Fraction(choose.randint(1, 9), 10)
            parts.append(RandomisedResponse(buckets=choose.randint(2, 4), noise=noise))
        else:
            q, sigma = Fraction(choose.randint(1, 10), 10), Fraction(choose.randint(4, 30), 10)
            parts.append(PoissonGaussian(q, sigma, choose.randint(1, 4 - len(steps))))
        steps += cells(parts[-1], sorted(choose.uniform(-2, 3) for _ in range(2)))
    return Composed(tuple(parts)) if len(parts) > 1 else parts[0], steps


@pytest.mark.parametrize("seed", range(12))
def test_no_stop_reveals_more_than_the_epsilon_of_the_whole_plan(seed: int) -> None:
    """Random plans of randomised response and sampled Gaussians, and the best of all rules of when to stop."""
    choose = random.Random(seed)  # noqa: S311 - the same plans every time
    mechanism, steps = drawn(choose)
    delta = Fraction(1, choose.choice([10, 100, 1_000, 100_000]))
    reported = run_epsilon(partition(delta), Run(MechanismPlan(mechanism)))
    assert reported.epsilon is not None
    assert worst(steps, [float(reported)] * (len(steps) + 1)) <= float(delta) * (1 + NEAR)


def test_telling_less_for_fewer_steps_would_reveal_more() -> None:
    """The ε of the steps that ran, where the outputs say when to stop, is passed: the adversary sees it."""
    delta, plan = Fraction(1, 10), PoissonGaussian(Fraction(1), Fraction(3, 2), 6)
    at = partition(delta)
    reported = [
        0.0,
        *(
            float(run_epsilon(at, Run(MechanismPlan(PoissonGaussian(Fraction(1), Fraction(3, 2), ran)))))
            for ran in range(1, 7)
        ),
    ]
    steps = cells(plan, [0.2, 0.9, 1.6])
    assert worst(steps, reported) > 1.05 * float(delta)
    assert worst(steps, [reported[-1]] * len(reported)) <= float(delta)


def test_the_line_says_at_what_delta_by_whom_and_of_what() -> None:
    """A DP-SGD plan by its privacy loss distribution; of a user with two records what the whole group reveals."""
    plan = Run(Plan(Fraction(1, 10), Fraction(2), Fraction(1), 100, 64))
    line = run_epsilon(partition(Fraction(1, 100_000)), plan)
    assert (line.accountant, line.runs, line.unit, line.relation) == ("PLD", 1, "record", RELATION)
    assert str(line) == (
        f"ε {line.number} at δ 0.00001 on did:web:hospital.example/digits/2026-q4, by PLD (unit record, {RELATION})"
    )
    users = run_epsilon(partition(Fraction(1, 100_000), "users", "user", 2), plan)
    assert users.epsilon is not None
    assert line.epsilon is not None
    assert users.epsilon > line.epsilon
    assert greatest((line, users)) == greatest((users, line)) == users
    assert Fraction(float(users)) >= users.epsilon
