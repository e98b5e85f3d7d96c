"""Trials judged by records that none of them trains on: priced in each trial, seen by no one; and a run that dies."""

from __future__ import annotations

import os
import secrets
import select as waiting
import signal
import tomllib
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import nn

from api.demo import digits
from client.http.problems import Refused
from ledger.commands.entry import Entry
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.plan_reader import parse_plan
from ledger.mechanisms.tuning import TrialScore, TuningPlan
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from ledger.wire.records import convert
from tests.documentation.fenced_blocks import ROOT, blocks
from tests.trainer_adapter.live_service import Place, open_place
from tests.trainer_adapter.tuning.test_tuning_run import FEW_TRIALS, ONE_MODEL, PAGE, TRAINING, Seconds
from trainer_adapter.cli.check import check_job
from trainer_adapter.cli.train import MICROBATCH
from trainer_adapter.cli.tune import tune_job
from trainer_adapter.job.job_spec import Job
from trainer_adapter.job.tuning_terms import Point
from trainer_adapter.job_models.job_model import JobModel
from trainer_adapter.layers.tensor_trees import select
from trainer_adapter.session.protocol import consumer_service
from trainer_adapter.statistics.held_out import held_out
from trainer_adapter.statistics.trial_score import HeldOutScore
from trainer_adapter.training.named_losses import cross_entropy
from trainer_adapter.training.run_options import Options
from trainer_adapter.training.training_records import read_records
from trainer_adapter.tuning.points import job_at
from trainer_adapter.tuning.trial_number import BITS
from trainer_adapter.tuning.tuning_run import POINT, Candidate, Clock, TuningRun

_, SCORE = (block.text for block in blocks(ROOT / "docs" / "tuning.md"))
TERMS: Any = tomllib.loads(SCORE)["train"]["plan"]["score"]
TAKEN: list[c.Json] = ["poisson_gaussian", "repeat_and_select", "pure"]
LOUD = ('epsilon = "0.25"', 'epsilon = "0.5"')
LONG_S = 60


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A policy that permits tuning and what it is judged by."""
    with open_place(tmp_path_factory.mktemp("scores") / "place", mechanisms=TAKEN) as found:
        yield found


def written(place: Place, name: str, *changes: tuple[str, str]) -> Path:
    """The page's job with its private score, with these texts in place of others."""
    path = place.job(name, TRAINING)
    head = path.read_text().split("[train.plan]")[0].replace("deadline_s = ", "deadline_s = 1")
    text = head + PAGE + SCORE
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    path.write_text(text)
    return path


def three(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many trials are drawn."""
    hardware = secrets.randbits
    monkeypatch.setattr(secrets, "randbits", lambda bits: int(0.95 * 2**bits) if bits == BITS else hardware(bits))


def test_trials_are_judged_in_private_and_no_score_leaves(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three are trained; the charge holds the score's terms, and neither file nor report a score."""
    three(monkeypatch)
    path = written(place, "private", FEW_TRIALS, ONE_MODEL, LOUD)
    checked = check_job(Job.load(path), place.service)
    assert checked.quote.permitted, checked.quote.reasons
    assert "judged by a confusion_matrix of records held out, in that price" in checked.in_words()
    seconds = Seconds()
    report = tune_job(Job.load(path), place.service, lambda _: None, clock=Clock(seconds.now, seconds.wait))
    charge = place.charge("private")
    assert charge is not None
    assert (charge.state, charge.steps_posted, charge.model) == (ChargeState.POSTED, 1, report.model)
    plan = TuningPlan.of(parse_plan(Entry.parse(place.service.entry(charge.index)).request["plan"]))
    assert plan.score == convert(TrialScore, {**TERMS, "metric": {**TERMS["metric"], "epsilon": "0.5"}})
    with safe_open(place.folder / "runs" / "private" / "model.safetensors", "pt") as file:
        about = file.metadata()
    assert POINT in about
    assert not [word for word in ("score", "right", "merit") if word in str({**about, "plan": ""})]
    assert set(report.to_json()) >= {"accuracy", "point"}
    assert not [name for name in report.to_json() if "score" in name or "trial" in name]


class Fixed(nn.Module):
    """Says of each record that it is of one class."""

    def __init__(self, answer: int) -> None:
        super().__init__()
        self.answer = nn.Parameter(torch.nn.functional.one_hot(torch.tensor(answer), 10).float())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Of records (records, ...)."""
        return self.answer.expand(len(inputs), 10)


class Broken(nn.Module):
    """Fails on every record."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Of any."""
        raise RuntimeError(str(inputs))


def test_a_score_counts_the_records_that_did_not_train(place: Place) -> None:
    """Nearly without noise: how many of those held out are of the class; a model that fails is the worst of all."""
    job = Job.load(written(place, "counted"))
    metric = {**TERMS["metric"], "epsilon": "256"}
    judge = HeldOutScore(convert(TrialScore, {**TERMS, "metric": metric}), job)
    opened = {place.ref: digits.archive(digits.FIRST)}
    inputs, targets = read_records(opened[place.ref], place.ref)
    assert isinstance(targets, torch.Tensor)
    judge.check_model(Fixed(0), select(inputs, slice(0, 2)))
    trains = judge.hold_out(opened, None, (inputs, targets))
    out = held_out(opened, Fraction(1, 4))
    assert torch.equal(trains, ~out)
    assert 0.15 < float(out.double().mean()) < 0.35
    counts = np.bincount(targets[out].numpy(), minlength=10)
    assert [judge.score(Fixed(answer)) for answer in range(10)] == [float(count) for count in counts]
    assert judge.score(Broken()) == -np.inf


@pytest.mark.parametrize("best", [0, 1, 2])
def test_the_trial_that_has_most_records_right_leaves_wherever_it_comes(
    place: Place, monkeypatch: pytest.MonkeyPatch, best: int
) -> None:
    """One candidate reads digits before it trains, the others nothing; public scores say the contrary and count not."""
    three(monkeypatch)
    job = Job.load(written(place, f"best-{best}", FEW_TRIALS, ONE_MODEL, LOUD))
    default, made = JobModel.make(job, torch.device("cpu")), list[nn.Module]()
    images, labels = default.test

    def candidate(point: Point) -> Candidate:
        model = JobModel.make(job_at(job, point), torch.device("cpu")).model
        place_of = len(made)
        if len(point) == 4:
            made.append(model)
            if place_of == best:
                learn(model, images, labels)
        # Without a step's size a trial changes nothing.
        return Candidate(model, torch.optim.SGD(model.parameters(), lr=0.0), lambda _: -float(place_of == best))

    seconds = Seconds()
    options = Options(
        service=place.service, read=default.records, example=select(default.test, slice(2)), microbatch=MICROBATCH
    )
    terms = TuningPlan.of(job.plan).score
    assert terms is not None
    judge, clock = HeldOutScore(terms, job), Clock(seconds.now, seconds.wait)
    with TuningRun(default.job, candidate, cross_entropy, options, clock, judge) as run:
        assert [*run] == [1]
    assert len(made) == 3
    assert run.model is made[best]


def learn(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> None:
    """From the public pictures, without privacy."""
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(40):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimiser.step()


@pytest.mark.parametrize(
    ("old", "new", "refusal"),
    [
        ('held_out = "0.25"', 'held_out = "1"', r"plan\.score\.held_out"),
        ('"predictions"', '"targets"', r"plan\.score\.metric: must be of what the model gives"),
        ('"predictions"', '"outputs[10]"', r"plan\.score\.metric.outputs\[10\]: is not among the 10 numbers"),
        ('kind = "confusion_matrix"', 'kind = "count"', r"plan\.score\.metric"),
        ("steps = 12\n", 'steps = 12\nunit = "user"\n', r"training\.unit: is user: a private score is over records"),
        ("trial_s = 60", 'trial_s = 60\n[train.resume]\nkey = "../keys/r.room"\nevery_s = 0', r"train\.resume: is for"),
    ],
)
def test_a_score_that_cannot_judge_is_refused_by_name(place: Place, old: str, new: str, refusal: str) -> None:
    """Before anything is sent to be recorded."""
    before = place.kinds()
    with pytest.raises(Malformed, match=refusal):
        tune_job(Job.load(written(place, "wrong", (old, new))), place.service, lambda _: None)
    assert place.kinds() == before


def test_a_score_of_another_relation_has_no_price(place: Place) -> None:
    """The service refuses the charge, and records none."""
    path = written(place, "other", ("REPLACE_SPECIAL", "ADD_OR_REMOVE_ONE"))
    with pytest.raises(Refused, match="holds under ADD_OR_REMOVE_ONE, and not under REPLACE_SPECIAL"):
        tune_job(Job.load(path), place.service, lambda _: None)
    assert place.charge("other") is None


def _tuned_until_it_waits(path: Path, pipe: int) -> None:
    """In a process of its own: say when all trials are over and the rest of the time is waited for."""

    def wait(_: float) -> None:
        os.write(pipe, b"waits")
        signal.pause()

    job = Job.load(path)
    with consumer_service(job) as service:
        tune_job(job, service, lambda _: None, clock=Clock(Seconds().now, wait))


def test_what_a_killed_run_had_is_lost_charged_and_never_leaves(place: Place) -> None:
    """Killed with its trials finished: nothing of them is on disk, no process goes on with them, all is posted."""
    path = written(place, "killed", FEW_TRIALS, ONE_MODEL)
    arrived, pipe = os.pipe()
    child = os.fork()
    if not child:
        try:
            _tuned_until_it_waits(path, pipe)
        finally:
            os._exit(1)
    ready, _, _ = waiting.select([arrived], [], [], LONG_S)
    os.kill(child, signal.SIGKILL)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    os.close(pipe)
    assert ready
    assert os.read(arrived, 5) == b"waits"
    os.close(arrived)
    folder = place.folder / "runs" / "killed"
    assert {one.name for one in folder.rglob("*")} == {"steps.log"}
    with pytest.raises(FileExistsError):
        tune_job(Job.load(path), place.service, lambda _: None)
    path.write_text(path.read_text().replace("../runs/killed", "../runs/killed-again"))
    with pytest.raises(Refused, match="id_reused"):
        tune_job(Job.load(path), place.service, lambda _: None)
    place.clock.ahead_ms += Job.load(path).deadline_s * 1000
    place.tdp.submit("revocation", {"contract": place.contract})
    charge = place.charge("killed")
    assert charge is not None
    assert (charge.state, charge.steps_posted, charge.model) == (ChargeState.POSTED, 1, None)
