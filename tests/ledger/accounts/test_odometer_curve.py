"""The odometer of an account at other δ than its partition's, against the exact ε of what ran."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import pytest

from ledger.accounting.epsilon_report import reported_epsilon
from ledger.accounts.odometer_curve import odometer_at
from ledger.filters import PureSum
from ledger.filters.gaussian import GaussianRule
from ledger.filters.renyi import Renyi
from ledger.filters.rule import Opening
from ledger.mechanisms.loss import Loss, loss_of
from ledger.mechanisms.mechanism import PoissonGaussian, Pure, SelfComposed
from ledger.wire.exact_numbers import DELTA_ONE

RELATION: Final = "REPLACE_SPECIAL"
DELTA: Final = Fraction(1, 10**5)
DELTAS: Final = tuple(Fraction(1, 10**place) for place in range(2, 9))
RUN: Final = PoissonGaussian(Fraction(1, 20), Fraction(2), 200)


def _renyi(slack: int = 0) -> tuple[Renyi, Loss]:
    """A rule with the loss of one run."""
    rule = Renyi.choose(Opening(DELTA, (Fraction(6), Fraction(2)), None, RELATION, slack))
    return rule, loss_of(rule.segments(RUN, RELATION), RUN.steps)


def test_each_point_bounds_what_ran_and_the_curve_falls() -> None:
    """Never below the privacy loss distribution's own ε; at the partition's δ it is the odometer of every page."""
    rule, loss = _renyi()
    found = {delta: odometer_at(rule, loss, delta) for delta in DELTAS}
    assert found[DELTA] == rule.odometer(loss)
    for delta, epsilon in found.items():
        assert epsilon is not None
        assert epsilon >= reported_epsilon(RUN, delta, RELATION), delta
    values = [found[delta] or Fraction(0) for delta in sorted(DELTAS)]
    assert values == sorted(values, reverse=True)
    assert len({*values}) == len(values)


def test_what_is_reserved_for_black_boxes_proves_nothing_below_it() -> None:
    """At a δ that the slack takes whole there is no ε; above it, a greater one than without."""
    slack = DELTA_ONE // 10**6
    rule, loss = _renyi(slack)
    reserved = Fraction(slack, DELTA_ONE)
    assert odometer_at(rule, loss, reserved) is None
    assert odometer_at(rule, loss, reserved / 2) is None
    assert odometer_at(rule, loss, DELTA) == rule.odometer(loss)
    plain, same = _renyi()
    more, less = odometer_at(rule, loss, DELTA), odometer_at(plain, same, DELTA)
    assert more is not None
    assert less is not None
    assert more > less


def test_a_rule_whose_checkpoints_share_its_own_delta_has_one_point() -> None:
    """And none at any other δ, greater or smaller."""
    rule = GaussianRule.choose(Opening(DELTA, (Fraction(6),), None, RELATION))
    loss = loss_of(rule.segments(RUN, RELATION), RUN.steps)
    shown = [delta for delta in DELTAS if odometer_at(rule, loss, delta) is not None]
    assert shown == [DELTA]


def test_a_pure_loss_is_the_same_at_every_delta() -> None:
    """It holds at δ = 0."""
    rule = PureSum()
    loss = loss_of(rule.segments(SelfComposed(3, Pure(Fraction(1, 4), RELATION)), RELATION), 3)
    assert {odometer_at(rule, loss, delta) for delta in DELTAS} == {rule.odometer(loss)}


@pytest.mark.parametrize("delta", DELTAS)
def test_an_infinite_charge_has_no_epsilon(delta: Fraction) -> None:
    """At any δ."""
    rule, loss = _renyi()
    infinite = Loss(loss.finite, tuple(1 for _ in loss.infinite))
    assert odometer_at(rule, infinite, delta) is None
