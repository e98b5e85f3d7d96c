"""A step of DP-SGD, against a step of SGD on the same model, expected batch size and optimiser."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import count
from typing import Final

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture
from torch.nn.functional import cross_entropy

from ledger.plan import Plan
from tests.bench.compare import Side, compare, nothing
from trainer_adapter.engine import Engine
from trainer_adapter.models import make
from trainer_adapter.randomness import Randomness

pytestmark = pytest.mark.bench

RECORDS, BATCH, STEPS = 1_600, 64, 50
PLAN: Final = Plan(Fraction(BATCH, RECORDS), Fraction(2), Fraction(1), 10_000_000, BATCH)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """One thread for both: on models this small more of them measure the scheduler."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", ["digits-linear", "digits-mlp"])
def test_a_step(benchmark: BenchmarkFixture, name: str) -> None:
    """Poisson draw, per-record gradients, clipping and noise, against a shuffled batch and a backward pass."""
    generator = torch.Generator().manual_seed(7)
    inputs, targets = torch.rand((RECORDS, 64), generator=generator), torch.arange(RECORDS) % 10
    private, plain = make(name), make(name)
    engine = Engine(PLAN, private, cross_entropy, (inputs, targets))
    private_optimiser, plain_optimiser = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (private, plain))
    randomness, numbers = Randomness(bytes(32)), count(1)

    def private_steps(nothing_given: None) -> None:
        del nothing_given
        for _ in range(STEPS):
            engine.step(next(numbers), private_optimiser, randomness)

    def plain_steps(nothing_given: None) -> None:
        del nothing_given
        for _ in range(STEPS):
            drawn = torch.randperm(RECORDS, generator=generator)[:BATCH]
            cross_entropy(plain(inputs[drawn]), targets[drawn]).backward()  # type: ignore[no-untyped-call]
            plain_optimiser.step()
            plain_optimiser.zero_grad(set_to_none=True)

    compare(
        benchmark,
        Side(f"DP-SGD step of {name}", STEPS, nothing, private_steps),
        Side("SGD step", STEPS, nothing, plain_steps),
        rounds=15,
    )
    first = make(name)
    for model in (private, plain):
        pairs = list(zip(first.parameters(), model.parameters(), strict=True))
        assert all(torch.isfinite(now).all() and not torch.equal(before, now) for before, now in pairs)
