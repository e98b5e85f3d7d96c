"""The one-run audit of real training: many steps on sampled batches of digits and canaries, charged to a book.

A canary is an empty picture under a word that nobody else has; its gradient is long enough to be clipped to the whole
of C, and it touches that word's weights alone. Each is put among the digits by a coin of its own, then the engine
trains once. The auditor sees every model on the way, as the ledger's ε allows: it scores a canary by the logarithm of
how much likelier its weights' movements are if it was among the records, step by step, and says "in" of the loudest.
"""

from __future__ import annotations

import io
from fractions import Fraction
from pathlib import Path
from typing import Final

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pytest_benchmark.fixture import BenchmarkFixture
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from api.demo import digits
from ledger.accounting.epsilon_report import reported_epsilon
from ledger.accounts.audit_bound import Tally, epsilon_least
from ledger.mechanisms.plan import Plan
from ledger.wire.exact_numbers import ceil_decimal
from tests.bench.charged import DELTA, RELATION, charged
from tests.bench.compare import LINES
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.training.one_run_audit import flip, tally

pytestmark = pytest.mark.bench

CANARIES: Final = 30_000
GUESSES: Final = 400
CLASSES: Final = 10
RATE: Final = 8.0
PLAN: Final = Plan(Fraction(1, 50), Fraction(4, 5), Fraction(1, 2), 100, 320)
SEEDS: Final = 3


class Worded(nn.Module):
    """A linear classifier of pictures of 64 pixels with a word each; word 0 is that of every digit."""

    def __init__(self) -> None:
        super().__init__()
        self.pixels = nn.Linear(64, CLASSES, bias=False)
        self.words = nn.Embedding(CANARIES + 1, CLASSES)
        for value in self.parameters():
            nn.init.zeros_(value)

    def forward(self, x: Tensor) -> Tensor:
        """Shape (records, 65), whole numbers: the pixels from 0 to 16, and the word."""
        scores: Tensor = self.pixels(x[:, :64].to(torch.float32) / 16) + self.words(x[:, 64])
        return scores


def _digits(part: slice) -> tuple[Tensor, Tensor]:
    held = np.load(io.BytesIO(digits.archive(part)))
    pixels = torch.from_numpy(np.rint(held["inputs"] * 16).astype(np.int64))
    return torch.cat((pixels, pixels.new_zeros((len(pixels), 1))), dim=1), torch.from_numpy(held["targets"])


def _records(included: NDArray[np.bool_]) -> tuple[Tensor, Tensor]:
    """The digits, and the canaries whose coin says so; each canary is of class 0."""
    inputs, targets = _digits(digits.FIRST)
    words = torch.from_numpy(np.flatnonzero(included)) + 1
    canaries = torch.zeros((len(words), 65), dtype=torch.int64)
    canaries[:, 64] = words
    return torch.cat((inputs, canaries)), torch.cat((targets, targets.new_zeros(len(words))))


def _likelier(before: Tensor, after: Tensor) -> Tensor:
    """Logarithm of the likelihood of one step's movement with the canary over that without, shape (canaries,)."""
    moved = (before - after) / RATE * PLAN.batch_size_expected / float(PLAN.clipping_norm)
    pulled = before.softmax(dim=1) - one_hot(torch.zeros(CANARIES, dtype=torch.int64), CLASSES)
    along = (moved * pulled / pulled.norm(dim=1, keepdim=True)).sum(dim=1)
    rate, variance = float(PLAN.sampling_probability), float(PLAN.noise_multiplier) ** 2
    return torch.log1p(rate * torch.expm1((along - 0.5) / variance))


def _audited(noise_part: float) -> tuple[Tally, float]:
    """One run with this part of the plan's noise: what the auditor reached, and the accuracy on other digits."""
    randomness = CsprngRandomness.fresh()
    included = flip(CsprngRandomness.fresh().stream("sampler", 1), CANARIES)
    model = Worded()
    engine = Engine(PLAN, model, cross_entropy, _records(included))
    engine.noise_std = engine.noise_std * noise_part  # the fault that the audit is to find
    optimiser, scores = torch.optim.SGD(model.parameters(), lr=RATE), torch.zeros(CANARIES, dtype=torch.float64)
    for step in range(1, PLAN.steps + 1):
        before = model.words.weight.detach()[1:].to(torch.float64)
        engine.step(step, optimiser, randomness)
        scores += _likelier(before, model.words.weight.detach()[1:].to(torch.float64))
    inputs, targets = _digits(digits.TEST)
    with torch.no_grad():
        accuracy = float((model(inputs).argmax(dim=1) == targets).to(torch.float32).mean())
    return tally(scores.numpy(), included, GUESSES, only_in=True), accuracy


@pytest.mark.parametrize("part", [Fraction(1), Fraction(1, 2)], ids=["the plan's noise", "half of it"])
def test_the_audit_of_a_charged_run(benchmark: BenchmarkFixture, tmp_path: Path, part: Fraction) -> None:
    """The bound stays below the ledger's ε with the plan's own noise, and passes it with half, in every run."""
    budget = Fraction(ceil_decimal(reported_epsilon(PLAN.whole, DELTA, RELATION), 3))
    found: list[Fraction] = []

    def run() -> None:
        folder = tmp_path / str(len(found))
        folder.mkdir()
        with charged(folder, "audited", PLAN, digits.RECORDS + CANARIES, budget) as told:
            seen, accuracy = _audited(float(part))
            told.steps = PLAN.steps
        found.append(epsilon_least(seen, DELTA))
        LINES.append(
            f"audit, {part} of the noise: ε at least {float(found[-1]):.2f}, the ledger's {float(told.epsilon):.2f}; "
            f"{seen.correct} of {seen.guesses} right; accuracy {accuracy:.2f}"
        )
        assert accuracy > 0.3
        assert (found[-1] < told.epsilon) == (part == 1)
        assert found[-1] > told.epsilon / 5

    benchmark.pedantic(run, rounds=SEEDS)
    benchmark.extra_info["epsilon_least"] = [float(one) for one in found]
