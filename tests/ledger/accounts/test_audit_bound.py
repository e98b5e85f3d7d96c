"""The theorem of the one-run audit by brute force, and its bound where doubt begins."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.accounts.audit_bound import Tally, chance, disproves, epsilon_least
from ledger.mechanisms.audited_plan import GUESSES_MAX, AuditedPlan
from ledger.mechanisms.plan_reader import parse_plan
from ledger.wire.malformed import Malformed
from tests.factories.documents import plan

DELTA = Fraction(1, 100_000)
LOGARITHM_PLACES = 10**30


def _logarithm(odds: int) -> Fraction:
    """ln(odds), to thirty places."""
    from mpmath import mp

    with mp.workdps(40):
        return Fraction(int(mp.nint(mp.log(odds) * LOGARITHM_PLACES)), LOGARITHM_PLACES)


def _exact(seen: Tally, odds: int, delta: Fraction) -> Fraction:
    """The theorem in rational arithmetic, e^ε a whole number, sums written out term by term."""
    right, trials = Fraction(odds, odds + 1), seen.guesses

    def at(count: int) -> Fraction:
        return math.comb(trials, count) * right**count * (1 - right) ** (trials - count)

    tail = sum((at(count) for count in range(seen.correct, trials + 1)), Fraction(0))
    steep = [
        sum((at(count) for count in range(seen.correct - back, seen.correct)), Fraction(0)) / back
        for back in range(1, seen.correct + 1)
    ]
    return min(Fraction(1), tail + 2 * seen.canaries * delta * max(steep, default=Fraction(0)))


@given(st.data(), st.integers(1, 60), st.integers(1, 9), st.fractions(0, Fraction(1, 100)))
def test_the_chance_is_the_theorems(data: st.DataObject, guesses: int, odds: int, delta: Fraction) -> None:
    """Equal to the theorem's right side in exact arithmetic, for any counts, odds and δ."""
    seen = Tally(guesses + data.draw(st.integers(0, 40)), guesses, data.draw(st.integers(0, guesses)))
    told = chance(seen, _logarithm(odds), delta)
    assert float(told) == pytest.approx(float(_exact(seen, odds, delta)), rel=1e-14)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 8), st.integers(1, 5), st.sampled_from([Fraction(0), Fraction(1, 50), Fraction(1, 5)]))
def test_no_leaking_mechanism_beats_the_bound(canaries: int, odds: int, delta: Fraction) -> None:
    """Randomised response on each coin that shows it outright with chance δ: every outcome counted, none above.

    It is (ε, δ)-private and, at δ = 0, the mechanism for which the theorem is an equality.
    """
    right = delta + (1 - delta) * Fraction(odds, odds + 1)
    exact = [Fraction(0)] * (canaries + 2)
    for answers in product((0, 1), repeat=canaries):
        exact[sum(answers)] += right ** sum(answers) * (1 - right) ** (canaries - sum(answers))
    for correct in range(canaries + 1):
        bound = float(chance(Tally(canaries, canaries, correct), _logarithm(odds), delta))
        assert float(sum(exact[correct:])) <= bound * (1 + 1e-12)
        assert delta or float(sum(exact[correct:])) == pytest.approx(bound, rel=1e-12)


@settings(deadline=None, max_examples=12)
@given(st.data(), st.integers(20, 400), st.sampled_from([Fraction(1, 20), Fraction(1, 1000)]))
def test_the_bound_is_where_doubt_begins(data: st.DataObject, guesses: int, doubt: Fraction) -> None:
    """It is disproved and the next hundredth is not; more right answers never lower it."""
    correct = data.draw(st.integers(guesses // 2, guesses - guesses // 10))
    seen = Tally(guesses, guesses, correct)
    found = epsilon_least(seen, Fraction(0), doubt)
    assert not disproves(seen, found + Fraction(1, 100), Fraction(0), doubt)
    assert found == 0 or disproves(seen, found, Fraction(0), doubt)
    assert epsilon_least(Tally(guesses, guesses, correct + 1), Fraction(0), doubt) >= found


def test_a_true_randomised_response_is_overstated_as_rarely_as_said() -> None:
    """Of 400 audits of an ε = ln 3 mechanism at a doubt of 1 in 20, at most 40 disprove its ε; the median is near."""
    generator, least = np.random.default_rng(7), Fraction(1_099, 1_000)
    correct = [int(generator.binomial(500, 0.75)) for _ in range(400)]
    accused = sum(disproves(Tally(500, 500, one), least, Fraction(0)) for one in correct)
    assert 4 <= accused <= 40
    assert epsilon_least(Tally(500, 500, sorted(correct)[200]), Fraction(0)) > least * Fraction(3, 4)


@pytest.mark.parametrize("counts", [(0, 0, 0), (1 << 23, 1, 1), (4, 5, 1), (4, 2, 3), (4, 2, -1)])
def test_impossible_counts_are_refused(counts: tuple[int, int, int]) -> None:
    """More right than guessed, more guessed than flipped, no coin at all."""
    with pytest.raises(Malformed, match=r"canaries|guesses|correct"):
        Tally(*counts)


def test_impossible_doubt_and_delta_are_refused() -> None:
    """A doubt of nothing disproves nothing, a doubt of one everything."""
    for delta, doubt in ((Fraction(1), Fraction(1, 20)), (Fraction(0), Fraction(0)), (Fraction(0), Fraction(1))):
        with pytest.raises(Malformed, match=r"delta|doubt"):
            epsilon_least(Tally(2, 1, 1), delta, doubt)


def test_nothing_guessed_proves_nothing() -> None:
    """Silence, and coin-flipping, leave the bound at 0; the most guesses that a plan may have are within range."""
    assert epsilon_least(Tally(100, 0, 0), DELTA) == 0
    assert epsilon_least(Tally(100, 100, 50), DELTA) == 0
    assert epsilon_least(Tally(GUESSES_MAX, GUESSES_MAX, GUESSES_MAX // 2 + 200), DELTA) < Fraction(1, 2)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"canaries": 0}, "canaries"),
        ({"guesses": 0}, "guesses"),
        ({"guesses": 201}, "guesses"),
        ({"training": {**plan(), "unit": "user"}}, "training.unit"),
        ({"training": {**plan(), "steps": 0}}, "training.steps"),
        ({"coins": [1]}, "coins"),
    ],
)
def test_a_plan_that_cannot_be_audited_is_refused(changes: dict[str, object], field: str) -> None:
    """By field; the good one costs what its training does."""
    whole = {"canaries": 200, "guesses": 100, "kind": "audited", "training": plan(), "v": 1}
    audited = AuditedPlan.of(parse_plan(whole))
    assert (audited.whole, audited.steps) == (audited.training.whole, audited.training.steps)
    assert audited.to_json() == whole
    with pytest.raises(Malformed) as fault:
        parse_plan({**whole, **changes})
    assert fault.value.field == field
