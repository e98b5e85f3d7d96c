"""What leases cost a run of steps of 5 ms: requests a second, and processor time as a share of the run's own."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import count
from time import perf_counter, thread_time
from typing import Any, Final

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from ledger.mechanisms.plan import Plan
from tests.bench.compare import LINES
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.run.block_leases import BlockLeases
from trainer_adapter.run.charged_run import Run
from trainer_adapter.run.fenced_output import FencedOutput
from trainer_adapter.run.progress import ProgressReporter
from trainer_adapter.run.state_digest import Digest, state_digest
from trainer_adapter.session.lease_requests import LeaseRequests

pytestmark = pytest.mark.bench

STEP_S: Final = 0.005
STEPS: Final = 600
ROUNDS: Final = 3
LEASE_S: Final = 1
REQUESTS_PER_S_MAX: Final = 1
SHARE_MAX: Final = 0.01
LIGHT: Final = Plan(Fraction(1, 100), Fraction(400), Fraction(1), STEPS, 17)


class Spent:
    """Processor time of leases, in whichever thread it is spent."""

    def __init__(self) -> None:
        """None yet."""
        self.seconds = 0.0
        self.requests = 0

    def around(self, monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> None:
        """Count what a method takes of its thread; its waits take none."""
        method = getattr(owner, name)

        def timed(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever the method takes
            began = thread_time()
            try:
                return method(*given, **named)
            finally:
                self.seconds += thread_time() - began
                self.requests += name == "lease"

        monkeypatch.setattr(owner, name, timed)


class Trained(Run):
    """A run with 90,300 parameters under Adam, whose state each lease names."""

    def __init__(self, *given: Any, spent: Spent, **named: Any) -> None:  # noqa: ANN401 - as a run takes them
        """Nothing is trained but once, so that the optimiser has a state."""
        super().__init__(*given, **named)
        self._model, self._spent = torch.nn.Linear(300, 300), spent
        self._optimiser = torch.optim.Adam(self._model.parameters())
        self._model(torch.ones(1, 300)).sum().backward()
        self._optimiser.step()

    def snapshot(self) -> Digest:
        """Hashed beside the steps, and counted."""
        digest = state_digest(self._model, self._optimiser)

        def counted() -> str:
            began = thread_time()
            try:
                return digest()
            finally:
                self._spent.seconds += thread_time() - began

        return counted


def work() -> Callable[[], object]:
    """A step of 5 ms of this processor."""
    data = bytes(1 << 20)
    began = thread_time()
    for _ in range(20):
        hashlib.sha256(data)
    each = (thread_time() - began) / 20
    step = bytes(int(len(data) * STEP_S / each))
    return lambda: hashlib.sha256(step)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One service."""
    with open_place(tmp_path_factory.mktemp("leases") / "place") as found:
        yield found


def test_leases_of_a_run_of_short_steps(
    benchmark: BenchmarkFixture, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests, answers, digests and outputs, over HTTP, beside the same run's steps."""
    spent, step, names = Spent(), work(), (f"lease-cost-{number}" for number in count())
    for owner, name in (
        (BlockLeases, "reach"),
        (LeaseRequests, "lease"),
        (FencedOutput, "put_newest"),
        (ProgressReporter, "look"),
    ):
        spent.around(monkeypatch, owner, name)
    shares, rates = list[float](), list[float]()

    def opened() -> tuple[tuple[Trained], dict[str, object]]:
        known = replace(place.assignment(next(names), LIGHT), step_leases=True, lease_s=LEASE_S, block_steps=10)
        run = Trained(known, place.service, spent=spent)
        run.open_data()
        return (run,), {}

    def train(run: Trained) -> None:
        with run:
            spent.seconds, spent.requests = 0.0, 0
            own, wall = thread_time(), perf_counter()
            for number in run.begin():
                step()
                run.done(number)
            shares.append(spent.seconds / (thread_time() - own))
            rates.append(spent.requests / (perf_counter() - wall))

    benchmark.pedantic(train, setup=opened, rounds=ROUNDS)
    share, rate = statistics.median(shares), statistics.median(rates)
    benchmark.extra_info |= {"share": share, "requests_per_second": rate}
    LINES.append(
        f"{share:>10.3%}    ({min(shares):.3%} to {max(shares):.3%})  leases of a run of {STEPS} steps of 5 ms, "
        f"processor time beside its own; {rate:.2f} requests/s ({min(rates):.2f} to {max(rates):.2f})"
    )
    assert rate <= REQUESTS_PER_S_MAX
    assert share <= SHARE_MAX
