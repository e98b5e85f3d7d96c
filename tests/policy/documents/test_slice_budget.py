"""A person who is in several slices: an adversary who may run over any of them, computed exactly.

A mechanism over m slices has a law for each set of slices in which the person's records are present. A slice is charged
for every two of these laws that differ in its own records alone, the others present or not. What the person sees is the
law with all records against the law with none.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise, product
from math import exp

import pytest

from ledger.filters.renyi import Renyi
from ledger.mechanisms.loss import Loss
from policy.documents.slice_budget import slice_budget
from tests.ledger.filters.adversary import Library, Mechanism, worst

WITHIN = 1 + 1e-9
Laws = dict[tuple[int, ...], tuple[Fraction, ...]]
"""By which slices hold the person's records, the probability of each output."""


def test_a_budget_is_rounded_down_and_its_chain_is_within_the_whole() -> None:
    """For every number of slices, by floats of another formula: δ (e^(ε/m) - 1) / (e^ε - 1)."""
    for epsilon, delta, slices in product(("0.5", "3", "8"), ("0.00001", "0"), (1, 2, 3, 7, 52)):
        whole, kept = Fraction(epsilon), Fraction(delta)
        part, share = slice_budget(whole, kept, slices)
        assert part * slices <= whole
        assert float(part * slices) == pytest.approx(float(whole), rel=2e-5 * slices)
        chain = sum(exp(float(part) * place) for place in range(slices))
        assert float(share) * chain <= float(kept) * WITHIN
        assert float(share) == pytest.approx(
            float(kept) * (exp(float(part)) - 1) / (exp(float(part) * slices) - 1), rel=2e-5
        )


def chained(epsilon: Fraction, delta: Fraction, slices: int) -> tuple[list[Fraction], Fraction]:
    """A run whose hops each take exactly (ε, δ): the law of its telling output by how many slices hold the person."""
    growth = Fraction(exp(float(epsilon)))
    reported = [Fraction(0)]
    for _ in range(slices):
        reported.append(growth * reported[-1] + delta)
    return reported, growth


@pytest.mark.parametrize("slices", [2, 3, 5])
def test_one_run_over_slices_shows_more_than_parts_of_delta_allow(slices: int) -> None:
    """Each slice holds (ε/m, δ/m) exactly, and the person sees more than δ; with the slice's own budget exactly δ."""
    epsilon, delta = Fraction(2), Fraction(1, 1000)
    reported, growth = chained(epsilon / slices, delta / slices, slices)
    for fewer, more in pairwise(reported):
        assert more - growth * fewer == delta / slices
        # The other output is no more likely with the person than without it.
        assert 1 - more <= growth * (1 - fewer)
    assert reported[-1] - growth**slices * reported[0] > delta
    part, share = slice_budget(epsilon, delta, slices)
    reported, growth = chained(part, share, slices)
    reached = float(reported[-1] - growth**slices * reported[0])
    assert 0.99 * float(delta) < reached <= float(delta) * WITHIN


def test_slices_of_budgets_that_differ_show_at_most_the_greatest() -> None:
    """Of a stream's versions: with the least ε first the chain is within the greatest; the other way it is not."""
    dice, beyond = random.Random(7), 0  # noqa: S311 - budgets to try
    for _ in range(60):
        slices = dice.randint(2, 6)
        budgets = [
            (Fraction(dice.randint(1, 80), 10), Fraction(dice.randint(1, 9), 10 ** dice.randint(3, 6)))
            for _ in range(slices)
        ]
        epsilon, delta = (max(every) for every in zip(*budgets, strict=True))
        steps = sorted(slice_budget(*one, slices) for one in budgets)
        assert sum(part for part, _ in steps) <= epsilon
        rising, falling = (added_up(one) / float(delta) for one in (steps, steps[::-1]))
        assert rising <= WITHIN
        beyond += falling > 1
    assert beyond


def added_up(steps: list[tuple[Fraction, Fraction]]) -> float:
    """The δ of steps that come one after the other: each counts by what came before."""
    return sum(float(share) * exp(float(sum(part for part, _ in steps[:at]))) for at, (_, share) in enumerate(steps))


def random_laws(dice: random.Random, *, slices: int, touches: frozenset[int]) -> Laws:
    """A mechanism over some slices; each record present changes the odds of outputs, rare ones more."""
    base = [dice.randint(30, 60), dice.randint(1, 9), 1]
    ranges = (10, 10), (5, 20), (10, 25)
    factor = {one: [Fraction(dice.randint(*each), 10) for each in ranges] for one in touches}
    laws: Laws = {}
    for present in product((0, 1), repeat=slices):
        odds = [Fraction(one) for one in base]
        for place in touches:
            if present[place]:
                odds = [one * by for one, by in zip(odds, factor[place], strict=True)]
        laws[present] = tuple(one / sum(odds) for one in odds)
    return laws


def between(laws: Laws, one: tuple[int, ...], other: tuple[int, ...]) -> Mechanism:
    """The mechanism between two sets of slices that hold the person."""
    return Mechanism(tuple(zip(laws[one], laws[other], strict=True)))


def price(laws: Laws, place: int, slices: int, orders: tuple[int, ...]) -> Loss:
    """What a slice is charged: at each order the most between any two laws that differ in its records alone."""
    losses = []
    for present in product((0, 1), repeat=slices):
        if not present[place]:
            changed = (*present[:place], 1, *present[place + 1 :])
            losses.append(between(laws, present, changed).loss(orders))
    finite = tuple(max(one.finite[at] for one in losses) for at in range(len(losses[0].finite)))
    return Loss(finite, (0,) * len(finite))


def admits(every: list[Laws], slices: int, rule: Renyi, epsilon: Fraction) -> Callable[[tuple[int, ...]], bool]:
    """Whether each slice by itself has room for so many of each."""
    cap = rule.cap(epsilon)
    prices = [[price(one, place, slices, rule.orders) for one in every] for place in range(slices)]

    def all_have_room(counts: tuple[int, ...]) -> bool:
        for own in prices:
            total = Loss.zero(len(own[0].finite))
            for loss, count in zip(own, counts, strict=True):
                total += loss.times(count)
            if not rule.admits(total, cap):
                return False
        return True

    return all_have_room


def reached(seed: int, slices: int, epsilon: Fraction, delta: Fraction) -> float:
    """The most that an adaptive analyst with a random library of runs over these slices reaches, of δ."""
    dice = random.Random(seed)  # noqa: S311 - libraries to try
    part, share = slice_budget(epsilon, delta, slices)
    touched = [frozenset({place}) for place in range(slices)] + [frozenset(range(slices))] * 2
    every = [random_laws(dice, slices=slices, touches=one) for one in touched]
    rule = Renyi(share, (2, 4, 8), (300, 300, 400))
    none, whole = (0,) * slices, (1,) * slices
    library: Library = tuple(between(one, whole, none) for one in every)
    return worst(library, admits(every, slices, rule, part), float(epsilon), 5 if slices == 2 else 4) / float(delta)


def test_no_adaptive_analyst_over_several_slices_reaches_more_than_delta() -> None:
    """Runs over one slice and over all at once, each chosen after what the others showed."""
    multiples = [reached(seed, slices, Fraction(slices, 2), Fraction(1, 5)) for seed in range(6) for slices in (2, 3)]
    assert 0.01 < max(multiples) <= WITHIN
