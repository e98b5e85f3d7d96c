"""The rule ``renyi`` against whole runs, stopped, refunded, voided and interleaved."""

from fractions import Fraction
from functools import partial
from math import exp, inf

import numpy as np
import pytest
from msgspec import structs

from ledger.filters.renyi import Renyi
from ledger.mechanisms.loss import Loss
from tests.ledger.filters.game import Charging, Game, Run
from tests.ledger.filters.lattice import Pair, on_lattice, tilted
from tests.ledger.filters.libraries import BASE, STEP, counted, leaky, pairs, response
from tests.ledger.filters.renyi_trials import random_trial, tuned_trials, unsplit

WITHIN = 1 + 1e-9
THOUSANDTH = Fraction(1, 1000)


def by_hand(outputs: list[tuple[float, float]], epsilon: float, loss: float, left: int) -> float:
    """An independent induction: the same step again and again, ended whenever it pays."""
    now = max(0.0, 1 - exp(epsilon - loss))
    if left == 0:
        return now
    return max(now, sum(p * by_hand(outputs, epsilon, loss + one, left - 1) for p, one in outputs))


def test_the_induction_agrees_with_one_by_hand() -> None:
    """Two runs of two steps each: four steps of a skewed mechanism, with the recursion written out plainly."""
    mechanism = tilted([(3, 2), (-1, 5), (-2, 1)], BASE)
    one = on_lattice(mechanism, STEP)
    rule = Charging.per_step([Run(0, 2)], [counted(1)], lambda loss: loss.finite[0] <= 4)
    reached = Game.explore(rule, [Run(0, 2)]).reached([one], lambda _: 0.3)
    both = [by_hand(way.outputs(), 0.3, 0.0, 4) for way in (mechanism, mechanism.swapped)]
    assert reached == pytest.approx(max(both), abs=1e-12)


def test_both_directions_are_tried() -> None:
    """A mechanism that tells all under Q alone is found out, and so is the same turned round."""
    quiet = Pair.of(STEP, -1, np.array([0.0, 0.0, 1.0]), 0.0)
    runs = [Run(0, 1)]
    rule = Charging.per_step(runs, [counted(1)], lambda loss: loss.finite[0] <= 1)
    for one in (quiet, quiet.swapped):
        reached = Game.explore(rule, runs).reached([one], lambda _: 1.0)
        assert reached == pytest.approx(1 - exp(-STEP))


@pytest.mark.parametrize(("claim", "beaten"), [(50.0, 0.01), (inf, 0.0)])
def test_only_a_finite_claim_is_beaten_by_a_leak(claim: float, beaten: float) -> None:
    """An infinite loss beats whatever finite ε is told, and beats none that is told to be infinite."""
    one, runs = on_lattice(leaky(response(1), Fraction(1, 100)), STEP), [Run(0, 1)]
    rule = Charging.per_step(runs, [counted(1)], lambda loss: loss.finite[0] <= 1)
    reached = Game.explore(rule, runs).reached([one], lambda loss: claim if loss.finite[0] else 50.0)
    assert reached == pytest.approx(beaten, abs=1e-12)


def test_steps_given_back_may_be_spent() -> None:
    """A run of three that stops after one leaves room for two more, and no rule without refunds gives that room."""
    runs = [Run(0, 3), Run(0, 2)]
    one = on_lattice(response(3), STEP)
    kept = Charging.per_step(runs, [counted(1)], lambda loss: loss.finite[0] <= 3)
    lost = Charging(tuple((line[-1],) * len(line) for line in kept.charges), kept.admits)
    some = Game.explore(kept, runs).reached([one], lambda _: 0.5)
    assert some == pytest.approx(one.times(3).delta(0.5), abs=1e-12)
    steps = {node.spent for node in Game.explore(lost, runs).nodes}
    assert counted(1) not in steps
    assert counted(1) in {node.spent for node in Game.explore(kept, runs).nodes}


def test_giving_back_steps_that_ran_is_broken() -> None:
    """A stopped run that is refunded whole: the analyst stops every run before its last step, and pays for none."""
    runs, one = [Run(0, 3)], on_lattice(response(3), STEP)
    sound = Charging.per_step(runs, [counted(1)], lambda loss: loss.finite[0] <= 3)
    line = sound.charges[0]
    rule = Charging(((line[0],) * 3 + line[3:],), sound.admits)
    promise = one.times(3).delta(0.7)
    for admissions, steps in ((1, 3), (2, 5), (4, 9)):
        game = Game.explore(rule, runs, admissions=admissions)
        assert game.reached([one], lambda _: 0.7) >= one.times(steps).delta(0.7) * (1 - 1e-9) >= promise * (1 - 1e-9)


def test_a_rule_that_charges_nothing_is_found_going_in_circles() -> None:
    """Without a charge the analyst never ends."""
    rule = Charging.per_step([Run(0, 1)], [counted(0)], lambda _: True)
    with pytest.raises(ValueError, match="circles"):
        Game.explore(rule, [Run(0, 1)])


@pytest.mark.parametrize("batch", [0, 1, *(pytest.param(batch, marks=pytest.mark.soak) for batch in range(2, 10))])
def test_random_libraries_never_break_the_rule(batch: int) -> None:
    """Thirty libraries each: four runs of up to three steps, two at a time, stopped, voided, refunded, both ways."""
    reached = [random_trial(seed).filtered() for seed in range(batch * 30, batch * 30 + 30)]
    assert max(reached) <= WITHIN
    assert sum(one > 0 for one in reached) >= 20


def test_random_libraries_do_break_the_curve_of_everything_so_far() -> None:
    """The same libraries, runs and refunds: the adversary is one, and the rule holds by more than luck."""
    reached = [random_trial(seed).by_curve() for seed in range(16)]
    assert sum(one > WITHIN for one in reached) >= 5
    assert max(reached) > 1.2


HURT = (Fraction(8), (2, 6), (600, 400), (0, 1, 4, 6))


@pytest.mark.parametrize(("steps", "ratio"), [(1, 1.2090), (2, 1.0564)])
def test_tuned_spikes_break_the_unsplit_orders(steps: int, ratio: float) -> None:
    """Which order has room is chosen by what the response said: up to 1.209 times the promise."""
    epsilon, orders, weights, heights = HURT
    whole = unsplit(Renyi(THOUSANDTH, orders, weights))
    worst = max(trial.filtered(admissions=3) for trial in tuned_trials(whole, epsilon, heights, steps))
    assert worst == pytest.approx(ratio, abs=2e-3)


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize(
    ("epsilon", "orders", "weights"),
    [
        (8, (2, 6), (600, 400)),
        (8, (2, 8), (400, 600)),
        (4, (3, 12), (300, 700)),
        (8, (2, 4, 8), (200, 600, 200)),
    ],
)
def test_tuned_spikes_do_not_break_the_split_orders(
    epsilon: int, orders: tuple[int, ...], weights: tuple[int, ...], steps: int
) -> None:
    """Spikes that fill each order to its own capacity, two runs at a time, stopped and refunded."""
    rule = Renyi(THOUSANDTH, orders, weights)
    heights = (0, 1, 4, 6) if len(orders) == 2 else (1, 6)
    reached = [trial.filtered(admissions=3) for trial in tuned_trials(rule, Fraction(epsilon), heights, steps)]
    assert 0.05 < max(reached) <= WITHIN


def test_an_order_that_comes_back_is_no_way_in() -> None:
    """A mechanism closes one order while it is charged; voided before its first step, it opens that order again."""
    reached = []
    for seed in range(30):
        trial = random_trial(seed)
        prices = [one.loss(trial.rule.orders) for one in trial.mechanisms]
        shut = Loss((0, *prices[0].finite[1:]), (1, *prices[0].infinite[1:]))
        cap = trial.rule.cap(trial.epsilon)
        admits = partial(trial.rule.admits, cap=cap)
        rule = Charging.per_step(trial.runs, [shut, *prices[1:]], admits)
        game = Game.explore(rule, trial.runs, together=2, admissions=4)
        reached.append(game.reached(trial.pairs, lambda _, told=float(trial.epsilon): told) / float(trial.rule.delta))  # type: ignore[misc] # a default binds it
    assert 0.1 < max(reached) <= WITHIN


def test_the_odometer_is_never_beaten() -> None:
    """``Renyi.odometer`` at all of δ, of posted and pending, at any stopping time, whatever was asked for."""
    trials = [random_trial(seed) for seed in range(40)]
    reached = [trial.told(structs.replace(trial.rule, odometers=None)) for trial in trials]
    assert 0.5 < max(reached) <= WITHIN


def test_the_odometer_without_weights_is_beaten() -> None:
    """The whole of δ at every order, on eleven of these libraries: the analyst stops when the least claim is wrong."""
    beaten = (1, 5, 6, 19, 25, 27, 30, 39, 46, 49, 53)
    reached = [(trial := random_trial(seed)).told(unsplit(trial.rule)) for seed in beaten]
    assert min(reached) > WITHIN
    assert max(reached) > 1.1


def test_the_odometer_holds_on_tuned_spikes() -> None:
    """Spikes at each order's capacity, where the one without weights is beaten worst."""
    rule = Renyi(THOUSANDTH, (2, 6), (600, 400))
    trials = [
        *tuned_trials(rule, Fraction(8), (1, 6), 1),
        *tuned_trials(unsplit(rule), Fraction(8), (1, 6), 1),
    ]
    assert max(trial.told(rule) for trial in trials) <= WITHIN
    assert max(trial.told(unsplit(rule)) for trial in trials) > WITHIN


def test_a_library_is_on_one_lattice() -> None:
    """A loss between two steps is an error, never rounded."""
    with pytest.raises(ValueError, match="lattice"):
        pairs((response(1, Fraction(12, 10)),))
