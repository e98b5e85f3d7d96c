"""Progress: in order, one at a time, again until it arrives; a charge that is over, or a signal, ends training."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from client.http.problems import Refused, Unreachable
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.job.signals import STOPPING, stop_signals
from trainer_adapter.run.progress import ProgressReporter
from trainer_adapter.training.attach import attach
from trainer_adapter.training.model_run import ModelRun
from trainer_adapter.training.run_options import Options

LONG_S = 60.0
TICK = threading.Event()


class Ear:
    """Hears reports, or answers with faults first; a test waits on what it hears, never on a clock."""

    def __init__(self, *faults: Exception) -> None:
        """Each fault is raised once, in order."""
        self.heard: list[int] = []
        self._faults, self._turn = list(faults), threading.Condition()

    def __call__(self, steps: int) -> None:
        """One report."""
        with self._turn:
            if self._faults:
                raise self._faults.pop(0)
            self.heard.append(steps)
            self._turn.notify_all()

    def wait(self, until: Callable[[list[int]], bool]) -> None:
        """Until what was heard is so."""
        with self._turn:
            assert self._turn.wait_for(lambda: until(self.heard), LONG_S)


def _never_over() -> str:
    return ""


def test_the_newest_report_arrives_and_the_last_at_the_end() -> None:
    """Reports rise and never repeat, far fewer than steps, and closing sends what is left."""
    ear = Ear()
    with closing(ProgressReporter(ear, _never_over, pace_s=0.001)) as progress:
        for step in range(1, 2_001):
            progress.report(step)
        ear.wait(bool)
        progress.report(2_001)
    assert ear.heard == sorted(set(ear.heard))
    assert ear.heard[-1] == 2_001
    assert len(ear.heard) < 500


def test_a_report_that_does_not_arrive_is_sent_again() -> None:
    """Three times no answer and one fault of the server: then the newest arrives."""
    ear = Ear(Unreachable("no"), Unreachable("no"), Refused(503, {}), Unreachable("no"))
    with closing(ProgressReporter(ear, _never_over, pace_s=0.001)) as progress:
        progress.report(1)
        progress.report(7)
        ear.wait(lambda heard: heard == [7])
        assert not progress.ended()


def test_a_refusal_ends_the_run_if_the_charge_is_over() -> None:
    """A service that does not know the route, or lags, ends nothing; a charge that is posted does."""
    asked: list[str] = []
    over = threading.Event()

    def ask() -> str:
        asked.append("asked")
        if len(asked) < 2:
            return ""
        over.set()
        return "the charge is posted"

    ear = Ear(Refused(404, {}), Refused(409, {}))
    with closing(ProgressReporter(ear, ask, pace_s=0.001)) as progress:
        progress.report(1)
        while not asked:
            TICK.wait(0.001)
        progress.report(2)
        assert over.wait(LONG_S)
        progress.close()
        assert progress.ended() == "the charge is posted"
    assert ear.heard == []


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One service for the file; each test has a run of its own."""
    with open_place(tmp_path_factory.mktemp("progress") / "place") as found:
        yield found


def _attached(place: Place, name: str, say: Callable[[str], None] | None = None) -> ModelRun:
    model = torch.nn.Linear(64, 10)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    # Without leases, so that the steps posted are just those taken.
    known = replace(place.assignment(name), step_leases=False)
    return attach(model, optimiser, cross_entropy, known, Options(service=place.service, say=say))


def test_the_service_knows_how_far_a_run_is(place: Place) -> None:
    """While it trains, the charge shows the steps that are done; the post is what counts."""
    known: list[object] = []
    with _attached(place, "told") as run:
        for step in run:
            if step == 15:
                while not known and not TICK.wait(0.01):
                    known += [found] if (found := place.service.charge("told").get("progress")) else []
    assert known
    told = known[0]
    assert isinstance(told, dict)
    steps = told["steps"]
    assert isinstance(steps, int)
    assert 1 <= steps <= 15


@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_ends_a_run_before_its_next_noise(place: Place, number: signal.Signals) -> None:
    """The step under way is the last; just what was taken is posted, and the handlers are as before."""
    before, said, taken = [signal.getsignal(one) for one in STOPPING], list[str](), list[int]()
    with _attached(place, f"signal-{number.name}", said.append) as run:
        for step in run:
            taken.append(step)
            if step == 7:
                os.kill(os.getpid(), number)
    charge = place.charge(f"signal-{number.name}")
    assert charge is not None
    assert (taken[-1], charge.steps_posted) == (7, 7)
    assert f"training ended early: stopped by {number.name}" in said
    assert [signal.getsignal(one) for one in STOPPING] == before


def test_a_second_signal_is_the_systems() -> None:
    """Whoever interrupts twice is obeyed at once."""
    # A shell has its background jobs ignore it, these tests perhaps among them.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with stop_signals() as asked:
            os.kill(os.getpid(), signal.SIGINT)
            assert asked() == "stopped by SIGINT"
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_run_ends_before_its_deadline(place: Place) -> None:
    """A post that comes later would be refused: near its deadline a run takes no further step."""
    said: list[str] = []
    with _attached(place, "late", said.append) as run:
        for step in run:
            if step == 3:
                place.clock.ahead_ms += 3_600_000 - 20_000
    charge = place.charge("late")
    assert charge is not None
    assert charge.steps_posted == 3
    assert "training ended early: the deadline of the charge is near" in said


def test_a_charge_that_is_over_ends_its_run(place: Place) -> None:
    """Settled while it trains: no further noise is drawn once the service has said so, and nothing is posted again."""
    said: list[str] = []
    with _attached(place, "over", said.append) as run:
        for step in run:
            if step == 1:
                run.session.posts.post(0, {})
            if step == 2:
                while not run.ended():
                    TICK.wait(0.01)
    charge = place.charge("over")
    assert charge is not None
    assert (charge.steps_posted, run.taken) == (0, 2)
    assert "training ended early: the charge is posted" in said


def test_a_revoked_contract_ends_its_runs(tmp_path: Path) -> None:
    """What was charged may not go on against a provider's will: told with a report, and what ran is posted."""
    said: list[str] = []
    with open_place(tmp_path / "place") as place:
        with _attached(place, "revoked", said.append) as run:
            for step in run:
                if step == 1:
                    place.tdp.submit("revocation", {"contract": place.contract})
                while step == 2 and not run.ended():
                    TICK.wait(0.01)
        charge = place.charge("revoked")
    assert charge is not None
    assert charge.steps_posted == 2
    assert "training ended early: the contract was revoked" in said
