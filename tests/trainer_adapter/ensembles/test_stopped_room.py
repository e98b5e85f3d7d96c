"""A room of ``epsilon answer`` that is really signalled: it ends in order, and what it gave is charged and durable."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from api.demo import digits
from client.http.problems import Unreachable
from client.keys.signer import Signer
from ledger.domain.outcomes import ChargeState
from ledger.wire import canonical_json as c
from tests.documentation.fenced_blocks import ROOT, blocks
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.cli.ensemble import seal_ensemble
from trainer_adapter.cli.main import app
from trainer_adapter.ensembles.question_client import QuestionClient, room_key
from trainer_adapter.job.job_spec import Job
from trainer_adapter.job.signals import STOPPING
from trainer_adapter.training.training_records import read_records

OWN = "tests/trainer_adapter/ensembles/test_answer_pages.py"
PLAN = next(block.text for block in blocks(ROOT / "docs" / "answers.md") if block.run_by == OWN)
QUESTIONS = 20
AT = "the room answers at "
LIGHT = (('noise = "9"', 'noise = "40"'), ("teachers = 40", "teachers = 10"), ("steps = 30", "steps = 2"))
"""So many questions within the ε of one run, of teachers that are made in a moment."""
SLOW = ("cadence_s = 1", "cadence_s = 3600")
"""No answer leaves within the test: questions wait."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A service whose policy permits votes, at Level 2."""
    with open_place(
        tmp_path_factory.mktemp("stopped") / "place",
        mechanisms=["gdp", "poisson_gaussian"],
        level=2,
        model_release=False,
    ) as found:
        yield found


def sealed(place: Place, name: str, *changes: tuple[str, str]) -> Path:
    """A sealed ensemble of the page's plan, for some questions more."""
    text = PLAN.replace("questions = 5", f"questions = {QUESTIONS}").replace("ensemble.room", f"{name}.room")
    for old, new in (*LIGHT, *changes):
        assert old in text, old
        text = text.replace(old, new, 1)
    path = place.job(name)
    path.write_text(path.read_text().split("[train.plan]")[0] + text)
    seal_ensemble(Job.load(path), place.service, lambda _: None)
    return path


class Room:
    """A process of its own that answers."""

    def __init__(self, child: int, out: int, errors: int, place: Place, job: Job) -> None:
        """Once it serves. ``out`` and ``errors`` are the reading ends of its pipes."""
        self._child, self._place, self._job = child, place, job
        self._out, self._errors = os.fdopen(out), os.fdopen(errors)
        self.said = list[str]()
        for line in self._errors:
            self.said.append(line)
            if AT in line:
                break
        assert self.said, "it ended at once"
        assert AT in self.said[-1], self.said
        self.address = self.said[-1].split(AT)[1].split(",")[0]

    def ask(self, rows: list[torch.Tensor], polls: int = 600) -> list[c.Object]:
        """The answers; Unreachable after so many looks without one."""
        left, never = [polls], threading.Event()

        def wait(seconds: float) -> None:
            left[0] -= 1
            if not left[0]:
                raise Unreachable("no answer yet")
            never.wait(seconds)

        key = room_key(self._place.service, self._job.id)
        with QuestionClient(self.address, self._job.id, key, Signer.load(self._job.key), wait) as client:
            return list(client.ask(rows))

    def end(self, number: signal.Signals) -> tuple[int, Any, str]:
        """Signal it: exit code, report, and what it wrote to standard error."""
        os.kill(self._child, number)
        out, errors = self._out.read(), self._errors.read()
        code = os.waitstatus_to_exitcode(os.waitpid(self._child, 0)[1])
        self._child = 0
        return code, json.loads(out), "".join(self.said) + errors

    def close(self) -> None:
        """Whatever happened."""
        if self._child:
            os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
        self._out.close()
        self._errors.close()


@contextmanager
def answering(place: Place, path: Path) -> Iterator[Room]:
    """``epsilon answer`` in a child of this process, which has loaded PyTorch already."""
    pipes = [os.pipe() for _ in range(2)]
    child = os.fork()
    if not child:
        status = 1
        try:
            status = _answer(path, *(end for _, end in pipes))
        finally:
            os._exit(status)
    for _, end in pipes:
        os.close(end)
    room = Room(child, pipes[0][0], pipes[1][0], place, Job.load(path))
    try:
        yield room
    finally:
        room.close()


def _answer(path: Path, out: int, errors: int) -> int:
    with os.fdopen(out, "w") as sys.stdout, os.fdopen(errors, "w", buffering=1) as sys.stderr:
        try:
            app(["answer", str(path), "--json"])
        except SystemExit as ended:
            return int(ended.code or 0)
        return 1


def rows(count: int) -> list[torch.Tensor]:
    """The first public inputs."""
    inputs, _ = read_records(digits.archive(digits.TEST), "test")
    assert isinstance(inputs, torch.Tensor)
    return list(inputs.reshape(len(inputs), -1).to(torch.float32)[:count])


def leased(place: Place, name: str) -> int:
    """How many steps the ledger counts if it never hears of the run again."""
    charge = place.charge(name)
    assert charge is not None
    assert (charge.state, charge.steps_posted) == (ChargeState.PENDING, None)
    return charge.leases.steps if charge.leases else 0


@pytest.mark.soak
@pytest.mark.parametrize("number", STOPPING)
def test_a_signalled_room_ends_in_order_and_the_next_goes_on(place: Place, number: signal.Signals) -> None:
    """Exit code 0 and a sentence; each answer given is behind a lease, and given again by the next process."""
    name = f"stopped-{number.name.lower()}"
    path = sealed(place, name)
    with answering(place, path) as room:
        first = room.ask(rows(3))
        code, report, errors = room.end(number)
    assert code == 0, errors
    assert report == {"answers": 3, "charge": name, "ended": f"stopped by {number.name}", "posted": False}
    assert "Traceback" not in errors
    counted = leased(place, name)
    assert max(int(str(one["step"])) for one in first) <= counted
    with answering(place, path) as again:
        assert again.ask(rows(3)) == first
        assert leased(place, name) == counted
        code, report, errors = again.end(number)
    # Equal questions got the stored answers, under other ids.
    assert (code, report["answers"]) == (0, 3), errors


@pytest.mark.soak
def test_questions_that_wait_when_a_room_is_stopped_cost_nothing(place: Place) -> None:
    """Nothing of them is leased, and no answer of theirs is on disk."""
    path = sealed(place, "waiting", SLOW)
    with answering(place, path) as room:
        with pytest.raises(Unreachable, match="no answer yet"):
            room.ask(rows(2), polls=2)
        code, report, errors = room.end(signal.SIGTERM)
    assert (code, report["answers"], report["posted"]) == (0, 0, False), errors
    assert leased(place, "waiting") == 0
    assert not (Job.load(path).output / "answers.log").read_bytes()


@pytest.mark.soak
def test_a_room_of_a_sealed_model_ends_in_order_too(place: Place) -> None:
    """Its answers cost nothing: there is nothing to go on with, and nothing to settle."""
    path = place.job("sealed-model")
    path.write_text(path.read_text() + "[train.answers]\ncadence_s = 1\nat_once = 4\n")
    place.run(path)
    with answering(place, path) as room:
        assert len(room.ask(rows(2))) == 2
        code, report, errors = room.end(signal.SIGTERM)
    assert (code, report["answers"], report["ended"], report["posted"]) == (0, 2, "stopped by SIGTERM", True), errors
