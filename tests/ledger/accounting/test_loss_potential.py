"""The potential against its recursion, loss by loss; the ticks, the ε and the prices that follow from it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from ledger.accounting.loss_lattice import LatticeLaw
from ledger.accounting.loss_potential import PART_ISSUED, TOLERANCE, Laws, Potential, lattice_step

EPSILON, DELTA = Fraction(1), Fraction(1, 1_000)
STEP = lattice_step(EPSILON)
SPAN = 12 * 192
TICK = float(DELTA) * TOLERANCE
BELOW, ABOVE = -8 * 192, 16 * 192


def law(atoms: dict[int, float], infinite: float = 0.0) -> LatticeLaw:
    """So likely a loss of so many points, and 0 else."""
    probabilities = np.zeros(2 * SPAN + 1)
    for place, probability in {0: 1 - infinite - sum(atoms.values()), **atoms}.items():
        probabilities[SPAN + place] = probability
    return LatticeLaw(probabilities, infinite)


SMALL: Laws = (law({40: 1e-3, -30: 1e-3, 1_824: 1e-6}, 1e-6), law({-40: 2e-3, 25: 1e-3}, 2e-7))
GREAT: Laws = (law({70: 3e-3, -90: 2e-3}, 1e-6), law({-60: 2e-3, 80: 2e-3, 1_700: 2e-6}, 1e-6))
BLOCKS = ((SMALL, 1), (GREAT, 2))


def expected(one: LatticeLaw, values: np.ndarray) -> np.ndarray:
    """E V(l + L), V constant below the lattice and on the line to 1 above it, one atom after the other."""
    found = np.full(len(values), one.infinite)
    places = np.arange(len(values))
    for at in np.flatnonzero(one.probabilities):
        reached = places + int(at) - SPAN
        inside = values[np.clip(reached, 0, len(values) - 1)]
        above = 1 - (1 - values[-1]) * np.exp(-STEP * np.maximum(0, reached - len(values) + 1))
        found += one.probabilities[at] * np.where(reached >= len(values), above, inside)
    return found


def tables(ticks: int, above: int = ABOVE) -> list[np.ndarray]:
    """V of both orders at each number of ticks up to this one, from their definition."""
    losses = STEP * np.arange(BELOW, above + 1)
    start = np.maximum(0.0, 1 - np.exp(1 - losses))
    found = [np.stack([start, start])]
    for left in range(1, ticks + 1):
        options = [found[-1]]
        for laws, price in BLOCKS:
            if price <= left:
                options.append(np.stack([expected(laws[order], found[left - price][order]) for order in (0, 1)]))
        found.append(np.maximum.reduce(options))
    return found


def potential() -> Potential:
    """Of both blocks."""
    return Potential(EPSILON, DELTA, BLOCKS)


def test_it_is_its_recursion() -> None:
    """At every point that is looked at, between points at the next one, and beyond the lattice at its ends."""
    ours, exact = potential(), tables(5)
    assert ours.step == STEP == 1 / 192
    for ticks, values in enumerate(exact):
        for place in (BELOW, BELOW + 1, -100, 0, 1, 150, 192, 193, 1_000, ABOVE - 1, ABOVE):
            value = values[:, place - BELOW].max() + ticks * TICK
            assert ours.at(ticks, place * STEP) == pytest.approx(value, abs=1e-13, rel=0)
        between = values[:, 151 - BELOW].max() + ticks * TICK
        assert ours.at(ticks, 150.5 * STEP) == pytest.approx(between, abs=1e-13, rel=0)
        assert ours.at(ticks, 500.0) == pytest.approx(values[:, -1].max() + ticks * TICK, abs=1e-13, rel=0)
        assert ours.at(ticks, -500.0) == pytest.approx(values[:, 0].max() + ticks * TICK, abs=1e-13, rel=0)
        assert ours.at(ticks) == ours.at(ticks, 0.0)
        assert ours.issued(ticks, 0.5) == pytest.approx(
            ours.at(ticks, 0.5) * (1 + PART_ISSUED) + ticks * TICK, rel=1e-14
        )
        assert ours.issued(ticks) == ours.issued(ticks, 0.0)


def test_the_end_of_the_lattice_costs_nothing_and_hides_nothing() -> None:
    """Against V on a lattice that goes on for 28 nats: never less, and no more than a hair near the end."""
    ours, wide = potential(), tables(3, ABOVE + 3 * 1_824)
    for ticks, values in enumerate(wide):
        for place in (0, 192, 1_000, 2_000, ABOVE - 1_825, ABOVE - 90, ABOVE - 1, ABOVE):
            found, exact = ours.at(ticks, place * STEP) - ticks * TICK, values[:, place - BELOW].max()
            assert -1e-14 <= found - exact <= 1e-9 * (1 - exact) + 1e-14


@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(3, 4), Fraction(1, 2)])
def test_a_capacity_is_the_most_ticks_that_are_issued(epsilon: Fraction) -> None:
    """A lesser ε is a loss so far; and no more than is asked for."""
    ours, lost = potential(), float(1 - epsilon)
    ticks = ours.capacity(epsilon, DELTA, 300)
    assert 5 < ticks < 300
    assert ours.issued(ticks, lost) <= float(DELTA) < ours.issued(ticks + 1, lost)
    assert ours.capacity(epsilon, DELTA, ticks - 1) == ticks - 1
    assert ours.capacity(epsilon, Fraction(ours.issued(3, lost)), 300) == 3
    assert ours.capacity(epsilon, Fraction(1, 10**9), 300) == 0


def test_its_bound_is_the_least_epsilon_of_the_lattice() -> None:
    """It keeps δ, and a point less does not; none where even the lattice's end does not."""
    ours = potential()
    for ticks in (1, 4, 40):
        found = ours.bound(ticks, DELTA)
        assert found is not None
        assert ours.at(ticks, 1 - found + 1e-9) <= float(DELTA)
        assert found == 0 or ours.at(ticks, 1 - found + 1.5 * STEP) > float(DELTA)
    assert ours.bound(0, DELTA) == pytest.approx(0, abs=STEP)
    assert ours.bound(1, Fraction(99, 100)) == 0
    assert ours.bound(40, Fraction(1, 10**6)) is None
    at_end = Fraction(ours.at(2, -500.0))
    assert ours.bound(2, at_end) == pytest.approx(9 + 1e-9, abs=1e-12)
    assert ours.bound(2, at_end * Fraction(999_999, 10**6)) is None


def leaking(part: float) -> Laws:
    """The small block, and an infinite loss more likely by so much of a tick's tolerance."""
    first, second = (
        LatticeLaw(one.probabilities - part * TICK * (np.arange(2 * SPAN + 1) == SPAN), one.infinite + part * TICK)
        for one in SMALL
    )
    return first, second


@pytest.mark.parametrize(
    ("part", "issued", "accepted"), [(0.12, 1, True), (0.13, 2, True), (0.49, 2, True), (0.51, 2, False)]
)
def test_a_price_is_issued_with_an_eighth_of_a_tick_and_accepted_with_half(
    part: float,
    issued: int,
    accepted: bool,  # noqa: FBT001 - drawn by name
) -> None:
    """The block itself pays exactly; what is worse by a part of the tolerance does not always."""
    ours = Potential(EPSILON, DELTA, [(SMALL, 1)])
    assert ours.price(SMALL, 6) == 1
    assert ours.price(leaking(part), 6) == issued
    assert ours.pays(leaking(part), 1, 6) is accepted


def test_a_price_is_at_most_what_an_epsilon_is_reported_for() -> None:
    """Of two blocks two ticks, of three three; none where that is one more, and none of what is lost for sure."""
    ours = Potential(EPSILON, DELTA, [(SMALL, 1)])
    twice, thrice = ((compose(SMALL[0], count), compose(SMALL[1], count)) for count in (2, 3))
    assert [ours.price(twice, most) for most in (1, 2, 5)] == [None, 2, 2]
    assert [ours.price(thrice, most) for most in (2, 3, 4)] == [None, 3, 3]
    assert [ours.pays(thrice, ticks, 5) for ticks in (1, 2, 3, 4, 5)] == [False, False, True, True, True]
    assert ours.price((law({}, 0.5), law({})), 6) is None
    assert ours.price((law({}), law({}, 0.5)), 6) is None


def compose(one: LatticeLaw, count: int) -> LatticeLaw:
    """So many of it, one after the other."""
    if count == 1:
        return one
    less = compose(one, count - 1)
    found = law({}, 1 - (1 - one.infinite) * (1 - less.infinite))
    found.probabilities[SPAN] = 0.0
    for first in np.flatnonzero(one.probabilities):
        for second in np.flatnonzero(less.probabilities):
            place = min(int(first + second) - SPAN, 2 * SPAN)
            found.probabilities[place] += one.probabilities[first] * less.probabilities[second]
    return found
