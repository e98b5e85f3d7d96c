"""A step of DP-SGD, against a step of SGD on the same model, expected batch size and optimiser."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from itertools import count
from pathlib import Path
from time import perf_counter, thread_time
from typing import Final

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture
from torch.nn.functional import cross_entropy

from ledger.mechanisms.plan import Plan
from tests.bench.compare import LINES, Side, compare, nothing
from tests.trainer_adapter.live_service import open_place
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.job_models.models import make
from trainer_adapter.run.charged_run import Run

pytestmark = pytest.mark.bench

SHARE_MAX: Final = 0.01
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
    randomness, numbers = CsprngRandomness(bytes(32)), count(1)

    def private_steps(nothing_given: None) -> None:
        del nothing_given
        for _ in range(STEPS):
            engine.step(next(numbers), private_optimiser, randomness)

    def plain_steps(nothing_given: None) -> None:
        del nothing_given
        for _ in range(STEPS):
            drawn = torch.randperm(RECORDS, generator=generator)[:BATCH]
            cross_entropy(plain(inputs[drawn]), targets[drawn]).backward()
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


def test_reporting(benchmark: BenchmarkFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of about 5 ms in blocks of a second, each block durable and progress told, against the same steps alone.

    The service answers in this very process, so that the ratio counts its work too. The share that reporting takes of
    a run counts what is the run's own: what the training thread computes in it and waits for the disk, and what the
    thread computes that reports. It is the least of the rounds, since others' work makes the disk slow as well.
    """
    steps, square, numbers, shares = 600, torch.full((160, 160), 0.01), count(1), list[float]()
    plan = Plan(Fraction(1, 100), Fraction(2_000), Fraction(1), steps, 7)

    waited, fsync = [0.0], os.fsync

    def timed(descriptor: int) -> None:
        start = perf_counter()
        fsync(descriptor)
        waited[0] += perf_counter() - start

    monkeypatch.setattr(os, "fsync", timed)

    def work(times: int) -> None:
        for _ in range(times):
            torch.mm(square, square)

    start = perf_counter()
    work(200)
    times = max(1, int(0.005 * 200 / (perf_counter() - start)))
    with open_place(tmp_path / "place") as place, ExitStack() as stack:

        def charged() -> Run:
            assignment = replace(place.assignment(f"run-{next(numbers)}", plan), block_steps=200)
            run = stack.enter_context(Run(assignment, place.service))
            run.open_data()
            run.begin()
            return run

        def reported(run: Run) -> None:
            # Those of the rounds before are still to be posted, and sleep.
            reporter = [one.ident for one in threading.enumerate() if one.name == "progress"][-1]
            assert reporter is not None
            clock = time.pthread_getcpuclockid(reporter)
            worked, waited[0], start, began = 0.0, 0.0, perf_counter(), thread_time() + time.clock_gettime(clock)
            for step in run.budget:
                before = thread_time()
                work(times)
                worked += thread_time() - before
                run.done(step)
            computed = thread_time() + time.clock_gettime(clock) - began - worked
            shares.append((computed + waited[0]) / (perf_counter() - start))

        def alone(nothing_given: None) -> None:
            del nothing_given
            for _ in range(steps):
                work(times)

        ours = Side("steps of 5 ms, charged and reported", steps, charged, reported)
        compare(benchmark, ours, Side("the same steps alone", steps, nothing, alone), rounds=5)
    benchmark.extra_info["share"] = min(shares)
    LINES.append(f"reporting takes {min(shares):.2%} of steps of 5 ms, of at most {SHARE_MAX:.0%}")
    assert min(shares) < SHARE_MAX
