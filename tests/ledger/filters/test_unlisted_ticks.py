"""Prices of what a catalogue does not list, against the least over this run and every longer one, tried one by one."""

from __future__ import annotations

import random
from fractions import Fraction
from math import inf

import pytest

from ledger.accounting.loss_potential import Potential
from ledger.filters import Catalogue
from ledger.filters.step_types import StepType
from ledger.filters.unlisted_ticks import Piece, least_ticks, pays
from ledger.mechanisms.mechanism import Gaussian, Laplace, Mechanism, PoissonGaussian, Pure
from tests.ledger.filters.lattice_laws import BUDGET, laws, random_pair

RELATION = "REPLACE_SPECIAL"
TYPES = (StepType(Fraction(2), Fraction(1, 20), 32, 1), StepType(Fraction(4), Fraction(1, 10), 60, 2))
RULE = Catalogue(Fraction(1, 1_000), Fraction(2), 0, 19, TYPES)
LENGTHS = (1, 2, 3, 5, 8, 13, 21, 34)


def finite(ticks: int | None) -> float:
    """A price; infinite where there is none."""
    return inf if ticks is None else ticks


@pytest.mark.parametrize("seed", range(10))
def test_the_own_price_is_the_least_over_every_longer_run(seed: int) -> None:
    """Random catalogues and mechanisms, exact on the lattice, from one step to more than the budget holds."""
    source = random.Random(4_000 + seed)  # noqa: S311 - the same catalogues every time
    listed, other = [random_pair(source) for _ in range(2)], random_pair(source)
    blocks = [(laws(pair), source.randint(1, 3)) for pair in listed]
    potential, most = Potential(BUDGET, Fraction(1, 100), blocks), 12
    prices = [finite(potential.price(laws(other.times(count)), most)) for count in range(1, 13)]
    assert prices[0] < inf
    assert [min(prices[place:]) for place in range(len(prices))] == prices


@pytest.mark.parametrize(
    "step",
    [
        Laplace(Fraction(30)),
        Pure(Fraction(1, 20), RELATION),
        Gaussian(Fraction(20)),
        PoissonGaussian(Fraction(1, 50), Fraction(1), 1),
        PoissonGaussian(Fraction(1, 200), Fraction(3, 5), 1),
    ],
    ids=repr,
)
def test_a_run_costs_no_more_than_one_that_it_begins(step: Mechanism) -> None:
    """Small pure losses, sums and sampled steps: what pays for a longer run pays for its beginning."""
    line = RULE.price_line
    prices = [finite(least_ticks(line, Piece(count, step, RELATION))) for count in LENGTHS]
    assert prices == sorted(prices)
    assert prices[0] < prices[-1]
    for count, ticks in zip(LENGTHS, prices, strict=True):
        if ticks < inf:
            assert pays(line, Piece(count, step, RELATION), int(ticks))
            assert ticks == 1 or not pays(line, Piece(count, step, RELATION), int(ticks) // 2)


def test_a_small_pure_loss_costs_about_its_part_of_the_budget() -> None:
    """A Laplace answer of b = 10 loses 0.1 at most: one fits as often as the budget is a count of them and more."""
    ticks = least_ticks(RULE.price_line, Piece(1, Laplace(Fraction(10)), RELATION))
    assert ticks is not None
    assert RULE.capacity // ticks >= float(RULE.epsilon) / 0.1 / 2
