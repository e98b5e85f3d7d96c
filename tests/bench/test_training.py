"""A step of DP-SGD, against a step of SGD on the same model, expected batch size and optimiser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Final

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture
from torch.nn.functional import cross_entropy

from ledger.plan import Plan
from tests.bench.compare import Side, compare, nothing
from tests.trainer.rooms import open_place
from trainer_adapter.charged_run import ChargedRun
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
            cross_entropy(plain(inputs[drawn]), targets[drawn]).backward()  # type: ignore[no-untyped-call] # torch has no type for it
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


def test_reporting(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """Steps of about 5 ms in blocks of a second, each block durable and progress told, against the same steps alone.

    The service answers in this very process, so that its own work is counted too.
    """
    steps, square, numbers = 600, torch.full((160, 160), 0.01), count(1)
    plan = Plan(Fraction(1, 100), Fraction(2_000), Fraction(1), steps, 7)

    def work(times: int) -> None:
        for _ in range(times):
            torch.mm(square, square)

    start = perf_counter()
    work(200)
    times = max(1, int(0.005 * 200 / (perf_counter() - start)))
    with open_place(tmp_path / "place") as place, ExitStack() as stack:

        def charged() -> ChargedRun:
            assignment = replace(place.assignment(f"run-{next(numbers)}", plan), block_steps=200)
            run = stack.enter_context(ChargedRun(assignment, place.service))
            run.open()
            run.begin()
            return run

        def reported(run: ChargedRun) -> None:
            for step in run.steps:
                work(times)
                run.done(step)

        def alone(nothing_given: None) -> None:
            del nothing_given
            for _ in range(steps):
                work(times)

        ours = Side("steps of 5 ms, charged and reported", steps, charged, reported)
        compare(benchmark, ours, Side("the same steps alone", steps, nothing, alone), rounds=5)
