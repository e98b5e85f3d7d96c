"""Counting steps of a reference mechanism: kept to the last digit, and broken by every shortcut.

``research/rules.md``, section 1.
"""

import random
from fractions import Fraction
from math import exp, log
from typing import NamedTuple

import pytest

from ledger.filters import Cap
from ledger.filters.reference_step_count import Reference
from ledger.mechanisms.loss import Loss
from tests.ledger.filters.game import Charging, Game, Run
from tests.ledger.filters.lattice import Pair, dominated, on_lattice, tilted
from tests.ledger.filters.libraries import (
    BASE,
    STEP,
    counted,
    curve_of,
    pairs,
    random_mechanism,
    response,
    thinned,
)

TOLERANCE = 1e-9
SKEWED = tilted([(1, 31), (-4, 3)], BASE)
NARROW = tilted([(2, 37), (1, 22), (-3, 30)], BASE)
BACKWARD = tilted([(1, 4), (-8, 6)], BASE)
TWO = (tilted([(1, 16), (-3, 13), (-4, 32)], BASE), tilted([(4, 17), (-3, 13), (0, 8)], BASE))
SKEWED_RATIO, BACKWARD_RATIO, TWO_RATIO = 1.3705, 11.517, 1.2280


# Its test of admission is the rule's own; which capacity keeps (ε, δ) is of a reference that lives on a lattice.
REFERENCE = Reference(
    delta=Fraction(1, 10**5), epsilon=Fraction(3), noise_multiplier=Fraction(1), probability=Fraction(1, 9)
)


class Counting(NamedTuple):
    """The greatest count of reference steps that an account may hold."""

    most: int

    @classmethod
    def of(cls, reference: Pair, epsilon: float, delta: float) -> "Counting":
        """The greatest count whose exact curve keeps (ε, δ)."""
        most = 0
        while reference.times(most + 1).delta(epsilon) <= delta:
            most += 1
        return cls(most)

    def cap(self, epsilon: Fraction) -> Cap:
        """The count, and no slack."""
        return Cap(epsilon, (self.most, 0))


STEP_PRICE = Loss((1, 0), (0, 0))
REFUSED = Loss((0, 0), (1, 0))


def counting(rule: Counting, runs: list[Run], prices: list[Loss]) -> Charging:
    """What the rule itself admits."""
    cap = rule.cap(Fraction(1))
    return Charging.per_step(runs, prices, lambda loss: REFERENCE.admits(loss, cap))


def test_the_rule_admits_up_to_its_count() -> None:
    """It is what the games below ask: the last step that fits is admitted, one more is not, nor an infinite one."""
    cap = Counting(5).cap(Fraction(1))
    found = [REFERENCE.admits(loss, cap) for loss in (STEP_PRICE.times(5), STEP_PRICE.times(6), REFUSED)]
    assert found == [True, False, False]


REFERENCES = {
    "response": response(1),
    "skewed": tilted([(5, 3), (-1, 20)], BASE),
    "skewed back": tilted([(1, 20), (-5, 3)], BASE),
    "three": tilted([(4, 1), (1, 6), (-2, 5), (0, 7)], BASE),
}


@pytest.mark.parametrize("name", ["response", "skewed", "skewed back", pytest.param("three", marks=pytest.mark.soak)])
def test_counting_is_reached_to_the_last_digit(name: str) -> None:
    """Runs of 1, 3 and 7 steps, two at a time, any of them stopped and refunded: exactly what N steps lose."""
    reference = on_lattice(REFERENCES[name], STEP)
    epsilon, runs = 7.5 * STEP, [Run(0, 1), Run(0, 3), Run(0, 7)]
    rule = Counting.of(reference, epsilon, 0.05)
    game = Game.explore(counting(rule, runs, [STEP_PRICE]), runs, together=2)
    promise = reference.times(rule.most).delta(epsilon)
    assert rule.most >= 5
    assert game.reached([reference], lambda _: epsilon) / promise == pytest.approx(1, abs=TOLERANCE)


def test_hundreds_of_steps_are_reached_too() -> None:
    """A long book: runs of 20 steps that stop after any of them."""
    reference = on_lattice(response(1), STEP)
    rule = Counting.of(reference, 3.0, 0.05)
    runs = [Run(0, 20)]
    game = Game.explore(counting(rule, runs, [STEP_PRICE]), runs)
    assert rule.most > 150
    promise = reference.times(rule.most).delta(3.0)
    # The last steps that no whole run fits are not reached, unless refunds made room for one.
    reached = game.reached([reference], lambda _: 3.0)
    assert reached <= promise * (1 + TOLERANCE)
    assert reached / reference.times(rule.most - rule.most % 20).delta(3.0) >= 1 - TOLERANCE


def post_processed(source: random.Random, reference: Pair) -> Pair:
    """A random mechanism, executed as often as the reference just dominates in the same order."""
    made, share = random_mechanism(source), Fraction(1)
    low, high = 0, 256
    while high - low > 1:
        middle = (low + high) // 2
        share = Fraction(middle, 256)
        fits = dominated(on_lattice(thinned(made, share), STEP).forward, reference.forward, STEP)
        low, high = (middle, high) if fits else (low, middle)
    return on_lattice(thinned(made, Fraction(low, 256)), STEP)


@pytest.mark.parametrize("batch", range(4))
def test_what_the_reference_dominates_counts_as_one(batch: int) -> None:
    """Twenty-five libraries of a reference and two dominated mechanisms, in runs, stopped, refunded, interleaved."""
    full = 0
    for seed in range(batch * 25, batch * 25 + 25):
        source = random.Random(seed)  # noqa: S311 - the same libraries every time
        reference = on_lattice(random_mechanism(source), STEP)
        library = [reference, post_processed(source, reference), post_processed(source, reference)]
        epsilon, rule = source.choice([1.5, 3, 6]) * STEP, Counting(most=source.randint(3, 6))
        runs = [Run(0, 1), Run(1, 2), Run(2, 3)]
        game = Game.explore(counting(rule, runs, [STEP_PRICE] * 3), runs, together=2)
        promise = reference.times(rule.most).delta(epsilon)
        reached = game.reached(library, lambda _, reported=epsilon: reported)  # type: ignore[misc] # a default binds it
        assert reached <= promise * (1 + TOLERANCE)
        full += reached >= promise * (1 - TOLERANCE)
    assert full == 25


def shortcut(reference: Pair, other: Pair, most: int, epsilon: float) -> float:
    """How far the analyst gets, as a multiple of the promise, if a step of ``other`` counts as one."""
    runs = [Run(0, 1), Run(1, 2), Run(1, 1)]
    game = Game.explore(counting(Counting(most=most), runs, [STEP_PRICE] * 2), runs)
    return game.reached([reference, other], lambda _: epsilon) / reference.times(most).delta(epsilon)


def test_comparing_the_greater_of_both_directions_is_broken() -> None:
    """The library's curves are of both directions the greater; the reference turned round then counts as one."""
    reference = on_lattice(SKEWED, STEP)
    other = reference.swapped
    assert all(other.delta(at * STEP) <= reference.delta(at * STEP) + 1e-13 for at in range(20))
    assert not dominated(other.forward, reference.forward, STEP)
    assert shortcut(reference, other, 6, 9 * STEP) == pytest.approx(SKEWED_RATIO, abs=1e-3)


def test_comparing_one_direction_is_broken() -> None:
    """One direction at e ≥ 0 says nothing of the other."""
    reference, other = on_lattice(NARROW, STEP), on_lattice(BACKWARD, STEP)
    assert dominated(other.forward, reference.forward, STEP, least=0)
    assert not dominated(other.backward, reference.backward, STEP, least=0)
    assert shortcut(reference, other, 6, 13 * STEP) == pytest.approx(BACKWARD_RATIO, abs=1e-3)


def test_a_mechanism_that_nothing_dominates_is_refused() -> None:
    """An infinite price at the count: neither in full nor in part."""
    runs = [Run(0, 2)]
    assert Game.explore(counting(Counting(most=5), runs, [REFUSED]), runs).moves == [[]]


BY_RESPONSE = Fraction(exp(0.1)).limit_denominator(10**9)


def test_the_refund_of_a_converted_run_is_broken() -> None:
    """Two steps of RR(.4) count as 40 of RR(.1) and one as 25; k(T) - k(T') given back is 1.0103 times the promise."""
    step = log(BY_RESPONSE)
    small, large = pairs((response(1, BY_RESPONSE), response(4, BY_RESPONSE)), step)
    for times, count in ((1, 25), (2, 40)):
        run = large.times(times)
        assert dominated(run.forward, small.times(count).forward, step)
        assert not dominated(run.forward, small.times(count - 1).forward, step)
    charges = ((counted(0), counted(1)), (counted(0), counted(25), counted(40)))
    rule = Charging(charges, lambda loss: loss.finite[0] <= 40)
    game = Game.explore(rule, [Run(0, 1), Run(1, 2)])
    promise = small.times(40).delta(0.4)
    assert game.reached([small, large], lambda _: 0.4) / promise == pytest.approx(1.0103, abs=1e-4)


def test_segments_converted_each_by_itself_hold() -> None:
    """The same mechanisms at 25 a step: the price of a run is the sum of its segments'."""
    step = log(BY_RESPONSE)
    library = pairs((response(1, BY_RESPONSE), response(4, BY_RESPONSE)), step)
    runs = [Run(0, 1), Run(1, 2)]
    rule = Charging.per_step(runs, [counted(1), counted(25)], lambda loss: loss.finite[0] <= 50)
    promise = library[0].times(50).delta(0.4)
    reached = Game.explore(rule, runs, together=2).reached(library, lambda _: 0.4)
    assert reached / promise == pytest.approx(1, abs=TOLERANCE)


def by_curve(library: list[Pair], runs: list[Run], epsilon: float, delta: float) -> Charging:
    """The unsound habit: compose the exact curves of all that was charged, and compare with the budget."""
    curve = curve_of(library)
    width = len(library)
    prices = [counted(*(int(at == place) for at in range(width))) for place in range(width)]
    return Charging.per_step(runs, prices, lambda loss: curve(loss.finite, epsilon) <= delta)


def test_the_region_of_two_references_is_broken() -> None:
    """Every point of the region of counts keeps the budget when chosen beforehand, and none when chosen on the way."""
    library = pairs(TWO)
    epsilon = 7 * STEP
    delta = library[0].times(8).delta(epsilon)
    runs = [Run(0, 1), Run(1, 1)]
    game = Game.explore(by_curve(library, runs, epsilon, delta), runs)
    assert game.reached(library, lambda _: epsilon) / delta == pytest.approx(TWO_RATIO, abs=1e-3)


def test_a_box_of_two_references_holds() -> None:
    """So many of the one and so many of the other, whatever the order: the corner of the box is all there is."""
    library = pairs(TWO)
    epsilon, runs = 7 * STEP, [Run(0, 2), Run(1, 3)]
    prices = [counted(1, 0), counted(0, 1)]
    rule = Charging.per_step(runs, prices, lambda loss: loss.finite[0] <= 5 and loss.finite[1] <= 4)
    promise = library[0].times(5).then(library[1].times(4)).delta(epsilon)
    assert Game.explore(rule, runs, together=2).reached(library, lambda _: epsilon) <= promise * (1 + TOLERANCE)
