"""The search for prices of many kinds of steps: how much it computes, and that what it finds is the rule's own."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import count
from typing import Any, Final

import pytest
from scipy import fft

from ledger.filters import Catalogue, Opening, catalogue_prices
from ledger.filters.catalogue_prices import Corner, choose_prices, corners
from ledger.filters.step_types import potential
from ledger.mechanisms.mechanism import Composed, PoissonGaussian

pytestmark = pytest.mark.soak

_NUMBERS: Final = count(1)
KINDS: Final = (
    PoissonGaussian(Fraction(1, 20), Fraction(2), 40),
    PoissonGaussian(Fraction(1, 10), Fraction(4), 30),
    PoissonGaussian(Fraction(1, 5), Fraction(3), 20),
    PoissonGaussian(Fraction(1, 186), Fraction(6531, 10_000), 186),
    PoissonGaussian(Fraction(256, 60_000), Fraction(11, 10), 1_170),
    PoissonGaussian(Fraction(1, 16), Fraction(4), 100),
    PoissonGaussian(Fraction(1), Fraction(20), 4),
    PoissonGaussian(Fraction(1, 50), Fraction(3, 2), 400),
)


def opening(kinds: int, budget: tuple[Fraction, Fraction]) -> Opening:
    """For a load of so many kinds of steps, each with a noise of which nothing is cached."""
    epsilon, delta = budget
    changed = Fraction(next(_NUMBERS), 10**6)
    steps = [PoissonGaussian(one.probability, one.noise_multiplier + changed, one.steps) for one in KINDS[:kinds]]
    return Opening(delta, (epsilon,), Composed(tuple(steps)), "REPLACE_SPECIAL")


def transformed(monkeypatch: pytest.MonkeyPatch, run: Callable[[], object]) -> float:
    """How many million points the inverse transforms of a run have in all."""
    points, inverse = 0, fft.irfft

    def counted(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - the library's
        nonlocal points
        result = inverse(*arguments, **options)
        points += result.size
        return result

    with monkeypatch.context() as patched:
        patched.setattr(fft, "irfft", counted)
        run()
    return points / 1e6


BUDGETS: Final = [(Fraction(3), Fraction(1, 1483)), (Fraction(8), Fraction(1, 100_000))]


@pytest.mark.parametrize("budget", BUDGETS, ids=["3", "8"])
@pytest.mark.parametrize(("kinds", "chosen", "offered"), [(3, 40, 115), (8, 125, 270)])
def test_opening_for_many_kinds_is_bounded_work(
    monkeypatch: pytest.MonkeyPatch, kinds: int, chosen: float, offered: float, budget: tuple[Fraction, Fraction]
) -> None:
    """In million points: a search on the rule's own lattice has three times as many for eight kinds."""
    assert transformed(monkeypatch, lambda: choose_prices(opening(kinds, budget))) <= chosen
    assert transformed(monkeypatch, lambda: corners(opening(kinds, budget))) <= offered


def recomputed(found: Corner, budget: tuple[Fraction, Fraction]) -> int:
    """The ticks of a corner's types on the rule's lattice."""
    epsilon, delta = budget
    return potential(epsilon, delta, found.types).capacity(epsilon, delta, catalogue_prices.TICKS_MAX)


@pytest.mark.parametrize("kinds", [3, 8])
def test_what_is_chosen_and_offered_is_of_the_rules_own_lattice(kinds: int) -> None:
    """Capacity by capacity; declared prices open with the capacity that was offered."""
    budget = BUDGETS[0]
    requested = opening(kinds, budget)
    rule = Catalogue.choose(requested)
    offers = corners(requested)
    assert rule.capacity == recomputed(choose_prices(requested), budget)
    assert rule.types in [one.types for one in offers]
    for one in offers:
        assert one.capacity == recomputed(one, budget)
    least = offers[-1]
    declared = Catalogue.choose(requested._replace(prices=least.prices))
    assert (declared.types, declared.capacity) == (least.types, least.capacity)


def loads(found: Corner) -> Fraction:
    """How many whole loads fit, and the part of one more."""
    blocks = [-(-kind.steps // one.steps) * one.ticks for kind, one in zip(KINDS, found.types, strict=False)]
    return Fraction(found.capacity, sum(blocks))


@pytest.mark.parametrize("budget", BUDGETS, ids=["3", "8"])
@pytest.mark.parametrize("kinds", [3, 4, 8])
def test_a_coarser_search_finds_as_many_loads(
    monkeypatch: pytest.MonkeyPatch, kinds: int, budget: tuple[Fraction, Fraction]
) -> None:
    """But for a hundredth, against the search on the rule's own lattice."""
    requested = opening(kinds, budget)
    coarse = choose_prices(requested)
    monkeypatch.setattr(catalogue_prices, "_COARSER", 1)
    fine = choose_prices(requested)
    assert loads(coarse) >= Fraction(99, 100) * loads(fine)
