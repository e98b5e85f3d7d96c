"""What a first run costs an account in what people read: the smaller odometer, against the ε of the run itself.

The plans lie beside the test, so that one more plan is one more line.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import pytest

from ledger.accounting.epsilon_report import reported_epsilon
from ledger.filters import Opening, choose_rule
from ledger.mechanisms.loss import loss_of
from ledger.mechanisms.mechanism import Gaussian, Mechanism, PoissonGaussian

TABLE: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("first_run_plans.json").read_text())
RELATION: Final = "REPLACE_SPECIAL"
EPSILON: Final = Fraction(16)


def mechanism_of(plan: dict[str, Any]) -> Mechanism:
    """All steps of one line."""
    shown = plan["mechanism"]
    noise = Fraction(shown["noise_multiplier"])
    if shown["kind"] == "gaussian":
        assert plan["steps"] == 1
        return Gaussian(noise)
    return PoissonGaussian(Fraction(shown["probability"]), noise, plan["steps"])


@pytest.mark.parametrize("plan", TABLE["plans"], ids=lambda plan: str(plan["name"]))
def test_a_first_run_is_reported_near_its_own_epsilon(plan: dict[str, Any]) -> None:
    """By its plan at half of δ within the bound of its PLD at δ; the rule's own odometer alone is no smaller."""
    delta, run = Fraction(plan["delta"]), mechanism_of(plan)
    rule = choose_rule("renyi", Opening(delta, (EPSILON,), None))
    whole, reported = (reported_epsilon(run, one, RELATION) for one in (delta, rule.odometer_delta))
    assert rule.odometer_delta == delta / 2
    assert whole < reported <= whole * Fraction(TABLE["within"])
    segments = rule.segments(run, RELATION)
    assert reported <= rule.odometer(loss_of(segments, sum(one.steps for one in segments)))
