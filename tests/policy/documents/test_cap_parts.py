"""A slice's part of a cap on one person: exact adversaries over slices, and what the parts are."""

from __future__ import annotations

import random
from fractions import Fraction
from math import exp

import pytest

from ledger.domain.gate import Caps
from ledger.filters.renyi import Renyi
from policy.documents.cap_parts import WHOLE, CapParts
from policy.documents.slice_budget import slice_budget
from tests.ledger.filters.adversary import Library, worst
from tests.policy.documents.test_slice_budget import WITHIN, admits, between, random_laws


def reached(seed: int, slices: int, cap: Fraction, part: Fraction) -> float:
    """The most δ, in parts of the stream's, at which an adaptive analyst passes a cap, with so much ε on each slice."""
    dice, epsilon, delta = random.Random(seed), Fraction(slices), Fraction(1, 5)  # noqa: S311 - libraries to try
    budget, share = slice_budget(epsilon, delta, slices)
    touched = [frozenset({place}) for place in range(slices)] + [frozenset(range(slices))] * 2
    every = [random_laws(dice, slices=slices, touches=one) for one in touched]
    none, whole = (0,) * slices, (1,) * slices
    library: Library = tuple(between(one, whole, none) for one in every)
    rule = Renyi(share, (2, 4, 8), (300, 300, 400))
    may = admits(every, slices, rule, min(part, budget))
    return worst(library, may, float(cap), 4) / float(delta)


@pytest.mark.parametrize("slices", [2, 3])
def test_no_adaptive_analyst_passes_a_cap_on_a_person(slices: int) -> None:
    """At the δ of the stream's budget, by runs over one slice and over all; whole caps show more."""
    cap = Fraction(slices, 2)
    divided = [reached(seed, slices, cap, CapParts(slices, "").of(cap)) for seed in range(5)]
    whole = [reached(seed, slices, cap, cap) for seed in range(5)]
    assert max(divided) <= WITHIN
    assert max(whole) > max(divided)


def test_parts_add_up_to_at_most_the_cap_at_its_delta() -> None:
    """By floats of the sum that group privacy has, for caps below and above the slice's own ε."""
    for slices in (2, 3, 7, 64):
        parts = CapParts(slices, "stream digits")
        for epsilon, delta, budget in (("1", "0.00001", "3"), ("128", "0.5", "0.01"), ("0.0007", "0.00000001", "2")):
            cap, kept, own = Fraction(epsilon), Fraction(delta), Fraction(budget)
            part, most = parts.of(cap), parts.delta_max(kept, cap, own)
            assert most is not None
            assert 0 < part * slices <= cap
            assert float(part * slices) == pytest.approx(float(cap), rel=1e-5 * slices)
            least = float(min(part, own))
            assert float(most) * sum(exp(least * place) for place in range(slices)) <= float(kept) * WITHIN


def test_a_partition_whose_persons_are_in_no_other_has_the_whole_of_each_cap() -> None:
    """Exactly, with no words beside its name; a coalition's cap is at most its budget."""
    third = Fraction(1, 3)
    assert (WHOLE.of(third), WHOLE.delta_max(third, third, third), WHOLE.delta_max(None, third, third)) == (
        third,
        third,
        None,
    )
    assert (WHOLE.beside("a/b/c"), WHOLE.source("policy a"), CapParts(2, "stream s").source("")) == (
        "a/b/c",
        "policy a",
        "",
    )
    assert Caps(None, third).of_coalition(third, Fraction(1)) == third
    assert Caps(None, third, appearances=2).of_coalition(Fraction(1), Fraction(1, 4)) == Fraction(1, 4)
    assert Caps(None, third, appearances=2).of_coalition(Fraction(1), Fraction(1)) == Fraction(1, 2)
