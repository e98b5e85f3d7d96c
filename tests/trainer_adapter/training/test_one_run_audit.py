"""The one-run audit: its bound by brute force, and a run whose noise was halved found out."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Final

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from ledger.accounting.epsilon_report import reported_epsilon
from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.training.one_run_audit import Tally, chance, epsilon_least, flip, tally

DELTA: Final = Fraction(1, 100_000)


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
    told = chance(seen, math.log(odds), float(delta))
    assert told == pytest.approx(float(_exact(seen, odds, delta)), rel=1e-9)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 8), st.integers(1, 5), st.sampled_from([Fraction(0), Fraction(1, 50), Fraction(1, 5)]))
def test_no_leaking_mechanism_beats_the_bound(canaries: int, odds: int, delta: Fraction) -> None:
    """Randomised response on each coin that tells it outright with chance δ: every outcome counted, none above.

    It is (ε, δ)-private and, at δ = 0, the mechanism for which the theorem is an equality.
    """
    right = delta + (1 - delta) * Fraction(odds, odds + 1)
    exact = [Fraction(0)] * (canaries + 2)
    for answers in product((0, 1), repeat=canaries):
        exact[sum(answers)] += right ** sum(answers) * (1 - right) ** (canaries - sum(answers))
    for correct in range(canaries + 1):
        bound = chance(Tally(canaries, canaries, correct), math.log(odds), float(delta))
        assert sum(exact[correct:]) <= bound * (1 + 1e-9)
        assert delta or float(sum(exact[correct:])) == pytest.approx(bound, rel=1e-9)


@settings(deadline=None, max_examples=30)
@given(st.data(), st.integers(20, 2_000), st.sampled_from([Fraction(1, 20), Fraction(1, 1000)]))
def test_the_bound_is_where_doubt_begins(data: st.DataObject, guesses: int, doubt: Fraction) -> None:
    """Every hundredth up to it is disproved and the next is not; more right answers never lower it."""
    correct = data.draw(st.integers(guesses // 2, guesses))
    seen = Tally(guesses, guesses, correct)
    found = epsilon_least(seen, Fraction(0), doubt)
    assert chance(seen, float(found + Fraction(1, 100)), 0.0) >= float(doubt) * (1 - 1e-5)
    assert found == 0 or chance(seen, float(found), 0.0) < float(doubt)
    if correct < guesses:
        assert epsilon_least(Tally(guesses, guesses, correct + 1), Fraction(0), doubt) >= found


def test_a_true_randomised_response_is_overstated_as_rarely_as_said() -> None:
    """Of 400 audits of an ε = ln 3 mechanism at a doubt of 1 in 20, at most 40 pass its ε, and some come near it."""
    generator = np.random.default_rng(7)
    found = [float(epsilon_least(Tally(500, 500, int(generator.binomial(500, 0.75))), Fraction(0))) for _ in range(400)]
    assert 4 <= sum(one > math.log(3) for one in found) <= 40
    assert np.median(found) > 0.75 * math.log(3)


class Coordinates(nn.Module):
    """One weight a canary: its gradient is a unit vector of its own, the strongest canary there is."""

    def __init__(self, canaries: int) -> None:
        super().__init__()
        self.weights = nn.Embedding(canaries, 1)
        nn.init.zeros_(self.weights.weight)

    def forward(self, which: Tensor) -> Tensor:
        """Shape (records, 1)."""
        weight: Tensor = self.weights(which)
        return weight


def _pushed(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss whose gradient is clipped to the whole of C, downwards."""
    return -(outputs.squeeze(-1) * targets)


CANARIES, GUESSES = 10_000, 400
AUDITED: Final = Plan(Fraction(1), Fraction(2), Fraction(1), 1, 1)
"""Loud canaries and one step: what the auditor sees of each is a Gaussian whose mean its coin shifts by σ/2."""


def _audit(noise_part: float, secret: bytes) -> Fraction:
    """A run of the plan with this part of its noise, and what its model proves of ε."""
    included = flip(CsprngRandomness(secret[::-1]).stream("sampler", 1), CANARIES)
    which = torch.from_numpy(np.flatnonzero(included))
    model = Coordinates(CANARIES)
    engine = Engine(AUDITED, model, _pushed, (which, torch.full((len(which),), 10.0)), 256)
    engine.noise_std = engine.noise_std * noise_part  # type: ignore[misc] # the fault that the audit is to find
    engine.step(1, torch.optim.SGD(model.parameters(), lr=1.0), CsprngRandomness(secret))
    scores = model.weights.weight.detach()[:, 0].to(torch.float64).numpy()
    return epsilon_least(tally(scores, included, GUESSES), DELTA)


def test_the_engine_passes_and_halved_noise_is_caught() -> None:
    """The plan's own noise proves an ε well above 0 and below the ledger's; half of it proves more than that."""
    promised = reported_epsilon(AUDITED.whole, DELTA, "ADD_OR_REMOVE_ONE")
    secret = bytes(range(32))
    assert promised / 4 < _audit(1.0, secret) < promised
    assert _audit(0.5, secret) > promised


def test_coins_are_fair_and_nobody_else_s() -> None:
    """Half of many coins say in, within six standard errors, and another secret flips others."""
    one, other = (flip(CsprngRandomness(bytes([seed]) * 32).stream("sampler", 1), 40_000) for seed in (1, 2))
    for coins in (one, other, one ^ other):
        assert abs(int(coins.sum()) - 20_000) < 6 * 100


def test_an_auditor_speaks_of_the_extremes() -> None:
    """The highest scores are called in and the lowest out; an odd guess goes to the highest; the rest is silence."""
    scores = np.array([0.3, -2.0, 5.0, 1.0, -1.0])
    included = np.array([False, True, True, False, False])
    assert tally(scores, included, 0) == Tally(5, 0, 0)
    assert tally(scores, included, 1) == Tally(5, 1, 1)
    assert tally(scores, included, 2) == Tally(5, 2, 1)
    assert tally(scores, included, 3) == Tally(5, 3, 1)
    assert tally(scores, included, 5) == Tally(5, 5, 2)
    assert [tally(scores, included, guesses, only_in=True).correct for guesses in range(6)] == [0, 1, 1, 1, 1, 2]


@pytest.mark.parametrize(
    ("scores", "included", "guesses", "match"),
    [
        (np.zeros(3), np.zeros(2, dtype=np.bool_), 1, "scores: must be one number for each coin"),
        (np.array([1.0, np.nan]), np.zeros(2, dtype=np.bool_), 1, "scores: must be finite"),
        (np.zeros(2), np.zeros(2, dtype=np.bool_), 3, "guesses: must lie between 0 and the canaries"),
    ],
)
def test_scores_that_say_nothing_are_refused(
    scores: NDArray[np.float64], included: NDArray[np.bool_], guesses: int, match: str
) -> None:
    """By field and rule."""
    with pytest.raises(Malformed, match=match):
        tally(scores, included, guesses)


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
    """Silence, and coin-flipping, leave the bound at 0."""
    assert epsilon_least(Tally(100, 0, 0), DELTA) == 0
    assert epsilon_least(Tally(100, 100, 50), DELTA) == 0
