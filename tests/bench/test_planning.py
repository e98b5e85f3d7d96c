"""Questions of people who plan: of a plan seen before, and of a new one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import count
from time import process_time
from typing import Final

import pytest
from dp_accounting import (
    DpEvent,
    GaussianDpEvent,
    NeighboringRelation,
    PoissonSampledDpEvent,
)
from dp_accounting.dp_event import MixtureOfGaussiansDpEvent
from dp_accounting.pld import PLDAccountant
from msgspec import structs
from pytest_benchmark.fixture import BenchmarkFixture
from scipy.stats import binom

from ledger.mechanisms.mechanism import PoissonGaussian
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.plan_reader import parse_plan
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number
from policy.planning.plan_report import advise, report
from policy.planning.plan_search import least_noise_admitted, most_steps_admitted, runs_that_fit
from policy.planning.what_if import WhatIf
from tests.bench.compare import Side, compare
from tests.factories.documented import opened
from tests.factories.documents import dense_plan

pytestmark = pytest.mark.bench

SEEN_S: Final = 0.2
_NUMBERS: Final = count(1)
LOADS: Final = {
    "depa-covid": ("1/186", "0.6531", 186),
    "mnist": ("8/1875", "1.1", 1_170),
}
GROUPS: Final = {
    **{load: (load, 1) for load in LOADS},
    "depa-covid, 2 records a person": ("depa-covid", 2),
    "depa-covid, 3 records a person": ("depa-covid", 3),
    "mnist, 3 records a person": ("mnist", 3),
}
"""Of each load, how many records one privacy unit has after joins."""
QUESTIONS: Final[dict[str, Callable[[WhatIf], object]]] = {
    "decision": lambda question: question.decision,
    "steps": most_steps_admitted,
    "noise": least_noise_admitted,
    "runs": runs_that_fit,
    "advice": advise,
}

NEW: Final[dict[str, tuple[Callable[[WhatIf], object], float]]] = {
    "decision": (lambda question: question.decision, 0.2),
    "whole report": (lambda question: report(question, 0, 0), 0.8),
}
"""Of a plan that nobody has asked for: the question, and the seconds of one processor that it may take."""


def _new(load: str) -> c.Object:
    probability, noise, steps = LOADS[load]
    number = next(_NUMBERS)
    rarer = Fraction(probability) * Fraction(10**6, 10**6 + number)
    return dense_plan(steps, format_number(Fraction(noise) + Fraction(number, 10**6)), format_number(rarer))


@pytest.mark.parametrize("named", GROUPS)
@pytest.mark.parametrize("question", NEW)
def test_a_new_plan(benchmark: BenchmarkFixture, question: str, named: str) -> None:
    """Its decision, and all that is advised of it, against one ε by dp_accounting's own accountant at its own grid."""
    market, (ask, limit), (load, records) = opened(), NEW[question], GROUPS[named]

    def ours() -> WhatIf:
        asked = market.ask(_new(load))
        return replace(asked, run=structs.replace(asked.run, unit_records_max=records))

    def theirs(body: c.Object) -> None:
        whole = Plan.of(parse_plan(body)).whole
        accountant = PLDAccountant(NeighboringRelation.REPLACE_SPECIAL)
        accountant.compose(_event(whole, records), whole.steps)
        accountant.get_epsilon(1e-5)

    reported = compare(
        benchmark,
        Side(f"{question} of a new plan, {named}", 1, ours, ask, process_time),
        Side("one ε by dp_accounting's PLDAccountant", 1, lambda: _new(load), theirs, process_time),
        3,
        limit=limit,
    )
    assert reported.within, reported.line


def _event(step: PoissonGaussian, records: int) -> DpEvent:
    """One step as so many records see it, of which each is drawn by itself."""
    probability, noise = float(step.probability), float(step.noise_multiplier)
    if records == 1:
        return PoissonSampledDpEvent(probability, GaussianDpEvent(noise))
    drawn = binom.pmf(range(records + 1), records, probability)
    return MixtureOfGaussiansDpEvent(noise, [float(count) for count in range(records + 1)], drawn.tolist())


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question(benchmark: BenchmarkFixture, question: str, load: str) -> None:
    """Seen before in 200 ms, against the same of a new plan; how long a new one took is told by the ratio."""
    market, ask = opened(), QUESTIONS[question]
    probability, noise, steps = LOADS[load]
    known = dense_plan(steps, noise, probability)
    ask(market.ask(known))
    reported = compare(
        benchmark,
        Side(f"{question} of a plan seen before, {load}", 1, lambda: market.ask(known), ask),
        Side("of a new one", 1, lambda: market.ask(_new(load)), ask),
        3,
        limit=SEEN_S,
    )
    assert reported.within, reported.line
