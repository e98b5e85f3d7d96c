"""The odometers of a model's ancestry, against an analyst who chooses each next plan by all outputs."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from math import exp, inf, log

import pytest

from ledger.accounting.epsilon_report import reported_epsilon
from ledger.accounts.plan_odometers import (
    GROUPS_MAX,
    UNITS,
    least_odometer,
    orders_epsilon,
    repeated,
    repeated_epsilon,
    weight,
)
from ledger.filters.renyi import Renyi
from ledger.filters.rule import Opening
from ledger.mechanisms.loss import Loss, loss_of
from ledger.mechanisms.mechanism import (
    BlackBox,
    Composed,
    Group,
    Mechanism,
    PoissonGaussian,
    Pure,
    RandomisedResponse,
    SelfComposed,
)

RELATION = "REPLACE_SPECIAL"
DELTA = Fraction(1, 50)
PART = DELTA / 4
NEAR = 1 + 1e-9
SHORT, LONG, OTHER = (
    SelfComposed(1, RandomisedResponse(buckets=2, noise=Fraction(1, 2))),
    SelfComposed(3, RandomisedResponse(buckets=2, noise=Fraction(1, 2))),
    SelfComposed(2, RandomisedResponse(buckets=3, noise=Fraction(7, 10))),
)
MENU = (SHORT, LONG, OTHER)
SAMPLED = PoissonGaussian(Fraction(1, 100), Fraction(1), 1_000)
Told = Callable[[tuple[int, ...]], float]
"""The ε that is told of runs, each by its place in the menu."""


def outputs(run: SelfComposed) -> tuple[tuple[float, float], ...]:
    """Of one step its outputs' probabilities with the record and without it; answers that are no record's are one."""
    step = run.mechanism
    assert isinstance(step, RandomisedResponse)
    true = 1 - float(step.noise) + float(step.noise) / step.buckets
    return (true, 1 / step.buckets), (1 - true, 1 - 1 / step.buckets)


def worst(told: Told, most: int) -> float:
    """The greatest δ of any analyst: after each step one stops, goes on, or when a run is over begins any other."""
    laws = [outputs(run) for run in MENU]
    turned = [tuple((q, p) for p, q in law) for law in laws]
    return max(_worst(law, told, most) for law in (laws, turned))


def _worst(laws: list[tuple[tuple[float, float], ...]], told: Told, most: int) -> float:
    @cache
    def reached(runs: tuple[int, ...], left: int, loss: float) -> float:
        claim = told(runs) if runs else inf
        best = -min(0.0, exp(claim - loss) - 1) if claim < inf else 0.0
        if left:
            ahead = [(runs, left - 1)]
        else:
            ahead = [((*runs, one), MENU[one].count - 1) for one in range(len(MENU)) if len(runs) < most]
        for after, rest in ahead:
            law = laws[after[-1]]
            best = max(best, sum(p * reached(after, rest, round(loss + log(p / q), 9)) for p, q in law))
        return best

    return reached((), 0, 0.0)


def plans(runs: tuple[int, ...]) -> list[Mechanism]:
    """The runs of the menu."""
    return [MENU[one] for one in runs]


def finite(epsilon: Fraction | None) -> float:
    """A bound as a float."""
    return inf if epsilon is None else float(epsilon)


def priced(rule: Renyi, runs: list[Mechanism]) -> Loss:
    """The sum of prices, each run in full."""
    total = Loss.zero(len(rule.coordinates))
    for run in runs:
        segments = rule.segments(run, RELATION)
        total += loss_of(segments, sum(one.steps for one in segments))
    return total


@pytest.mark.parametrize("odometer", [repeated_epsilon, orders_epsilon])
def test_no_choice_of_plans_reaches_more_than_its_part(
    odometer: Callable[[list[Mechanism], Fraction, str], Fraction | None],
) -> None:
    """Three runs out of three plans, stopped anywhere."""

    @cache
    def told(runs: tuple[int, ...]) -> float:
        return finite(odometer(plans(runs), PART, RELATION))

    assert 0 < worst(told, 3) <= float(PART) * NEAR


def test_the_least_of_the_three_keeps_delta() -> None:
    """What is told of a model with its ancestry, of two runs and more; of one run its own number is told."""
    rule = Renyi.choose(Opening(DELTA, (Fraction(3),), None))

    @cache
    def told(runs: tuple[int, ...]) -> float:
        if len(runs) < 2:
            return inf
        return finite(least_odometer(rule, priced(rule, plans(runs)), plans(runs), RELATION)[1])

    assert 0 < worst(told, 3) <= float(DELTA) * NEAR


def test_the_composition_of_plans_that_were_chosen_one_by_one_is_beaten() -> None:
    """All plans together at the whole of δ: the analyst ends, and chooses, where it is exceeded."""

    @cache
    def told(runs: tuple[int, ...]) -> float:
        return float(reported_epsilon(Composed(tuple(plans(runs))), DELTA, RELATION))

    assert worst(told, 3) > 1.2 * float(DELTA)


def test_weights_of_all_counts_sum_to_at_most_one() -> None:
    """From a whole first run on; the rest beyond a count is less than 3/count."""
    total = sum(weight(units) for units in range(UNITS, 1_000))
    assert 1 - Fraction(1, 200) < total < 1
    assert all(weight(units) > 0 for units in range(UNITS, 100))


def test_runs_are_grouped_by_their_step_in_units_of_a_quarter_of_the_first() -> None:
    """Every run counts as whole units; a plan of several kinds of steps is repeated as a whole."""
    short = PoissonGaussian(Fraction(1, 100), Fraction(1), 251)
    both = Composed((SAMPLED, LONG))
    groups = repeated([SAMPLED, both, short, SAMPLED, both])
    assert [(one.first, one.units) for one in groups] == [(1_000, 4 + 2 + 4), (1, 8)]
    assert groups[1].step == both
    assert groups[0].epsilon(DELTA, RELATION) == reported_epsilon(
        PoissonGaussian(Fraction(1, 100), Fraction(1), 2_500), DELTA * weight(10), RELATION
    )


def test_groups_share_their_part_of_delta() -> None:
    """The first has half of it, the second a quarter."""
    epsilons = [
        reported_epsilon(run, DELTA / 2**place * weight(UNITS), RELATION) for place, run in enumerate((LONG, OTHER), 1)
    ]
    assert repeated_epsilon([LONG, OTHER], DELTA, RELATION) == sum(epsilons)


def test_what_has_no_proof_has_no_number() -> None:
    """Too many kinds of steps, a part of δ below what is computed, and black boxes among Rényi orders."""
    many = [Pure(Fraction(one, 100), RELATION) for one in range(1, GROUPS_MAX + 2)]
    assert repeated_epsilon(many, DELTA, RELATION) is None
    assert repeated_epsilon(many[:-1], DELTA, RELATION) is not None
    assert repeated_epsilon([SAMPLED], Fraction(1, 10**11), RELATION) is None
    assert orders_epsilon([SAMPLED, BlackBox(Fraction(1, 10**6), Fraction(1), RELATION)], DELTA, RELATION) is None


def test_a_plan_whose_distribution_is_not_found_has_a_number() -> None:
    """Of a large group at much noise: by Rényi orders, and the page of its model is shown."""
    run = Group(64, PoissonGaussian(Fraction(3, 10), Fraction(10**6), 1))
    found = repeated_epsilon([run, run], Fraction(1, 10**5), RELATION)
    assert found is not None
    assert found == reported_epsilon(SelfComposed(2, run), Fraction(1, 2 * 10**5) * weight(2 * UNITS), RELATION)


def test_a_base_and_two_short_runs_after_it_are_a_quarter_tighter_than_the_rule_alone() -> None:
    """A rule whose terms leave all of δ to its own odometer tells that one."""
    fine = PoissonGaussian(Fraction(1, 100), Fraction(1), 200)
    runs: list[Mechanism] = [SAMPLED, fine, fine]
    rule = Renyi.choose(Opening(Fraction(1, 100_000), (Fraction(8),), None))
    own = rule.odometer(priced(rule, runs))
    name, least = least_odometer(rule, priced(rule, runs), runs, RELATION)
    assert (name, least is not None) == ("PLD odometer of the plans", True)
    assert finite(least) < 0.78 * float(own)
    alone = Renyi(rule.delta, rule.orders, rule.weights, rule.slack)
    assert least_odometer(alone, priced(alone, runs), runs, RELATION) == (
        "renyi odometer",
        alone.odometer(priced(alone, runs)),
    )
