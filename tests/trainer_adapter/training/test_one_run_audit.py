"""The one-run audit: a run whose noise was halved is found, and an auditor speaks of the extremes."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ledger.accounting.epsilon_report import reported_epsilon
from ledger.accounts.audit_bound import Tally, epsilon_least
from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.csprng import PAIRS_AT_ONCE, CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.dpsgd.known_updates import known_kind
from trainer_adapter.gpu_kernels.weight_update import ADAM
from trainer_adapter.training.one_run_audit import flip, tally

DELTA: Final = Fraction(1, 100_000)


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
PIECED: Final = 6 * PAIRS_AT_ONCE + 6
"""Values of a model whose tail has four pieces."""
AUDITED: Final = Plan(Fraction(1), Fraction(2), Fraction(1), 1, 1)
"""Loud canaries and one step: what the auditor sees of each is a Gaussian whose mean its coin shifts by σ/2."""


def _audit(noise_part: float, secret: bytes) -> Fraction:
    """A run of the plan with this part of its noise, and what its model proves of ε."""
    included = flip(CsprngRandomness(secret[::-1]).stream("sampler", 1), CANARIES)
    which = torch.from_numpy(np.flatnonzero(included))
    model = Coordinates(CANARIES)
    engine = Engine(AUDITED, model, _pushed, (which, torch.full((len(which),), 10.0)), 256)
    engine.noise_std = engine.noise_std * noise_part
    engine.step(1, torch.optim.SGD(model.parameters(), lr=1.0), CsprngRandomness(secret))
    scores = model.weights.weight.detach()[:, 0].to(torch.float64).numpy()
    return epsilon_least(tally(scores, included, GUESSES), DELTA)


def test_the_engine_passes_and_halved_noise_is_caught() -> None:
    """The plan's own noise proves an ε well above 0 and below the ledger's; half of it proves more than that."""
    promised = reported_epsilon(AUDITED.whole, DELTA, "ADD_OR_REMOVE_ONE")
    secret = bytes(range(32))
    assert promised / 4 < _audit(1.0, secret) < promised
    assert _audit(0.5, secret) > promised


def _audit_of_pieces(noise_part: float, secret: bytes) -> Fraction:
    """The same where noise is added, and AdamW's update made, piece by piece: its first moment shows the noisy mean."""
    included = flip(CsprngRandomness(secret[::-1]).stream("sampler", 1), CANARIES)
    which = torch.from_numpy(np.flatnonzero(included))
    # Canaries lie between values of no record, in the middles of three pieces and at their ends.
    model = Coordinates(PIECED)
    places = torch.linspace(0, PIECED - 1, CANARIES).to(torch.int64)
    engine = Engine(AUDITED, model, _pushed, (places[which], torch.full((len(which),), 10.0)), 256)
    engine.noise_std = engine.noise_std * noise_part
    optimiser = torch.optim.AdamW(model.parameters(), lr=1.0)
    assert known_kind(optimiser, model.parameters()) == ADAM, "else the update is made in one piece"
    engine.step(1, optimiser, CsprngRandomness(secret))
    moment = optimiser.state[model.weights.weight]["exp_avg"][places, 0]
    return epsilon_least(tally(-moment.to(torch.float64).numpy(), included, GUESSES), DELTA)


def test_the_tail_in_pieces_passes_and_halved_noise_is_caught() -> None:
    """Of several pieces, shared by two threads: as above."""
    promised = reported_epsilon(AUDITED.whole, DELTA, "ADD_OR_REMOVE_ONE")
    secret, threads = bytes(range(32)), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert promised / 4 < _audit_of_pieces(1.0, secret) < promised
        assert _audit_of_pieces(0.5, secret) > promised
    finally:
        torch.set_num_threads(threads)


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
