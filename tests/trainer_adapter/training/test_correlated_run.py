"""A run with correlated noise against a real service: proposed, charged, leased, posted by the round, not resumed."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from ledger.accounting.epsilon_report import reported_epsilon
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.correlated.correlated_plan import CorrelatedPlan
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.killed_runs import RESUME
from tests.trainer_adapter.live_service import open_place
from trainer_adapter.cli.check import check_job
from trainer_adapter.dpsgd.correlated.noise_report import report_noise
from trainer_adapter.job.job_spec import Assignment, Job
from trainer_adapter.training.attach import attach
from trainer_adapter.training.correlated_run import CorrelatedRun
from trainer_adapter.training.run_options import Options

TARGET = """[train.privacy]
epsilon = "1"
batch_size_expected = 40
clipping_norm = "1"
steps = 10
"""
PAGE = Path(__file__).parents[3] / "docs" / "correlated_noise.md"


def test_rounds_are_charged_posted_and_never_resumed(tmp_path: Path) -> None:
    """The page's plan, in a job as it stands: five rounds of four updates, one model."""
    plan = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    with open_place(tmp_path / "place") as place:
        path = place.job("rounds")
        path.write_text(re.sub(r"\[train\.plan\].*", "", path.read_text(), flags=re.DOTALL) + plan)
        words = check_job(Job.load(path), place.service).in_words()
        assert "correlated noise: 5 rounds of 4 steps, charged by the round" in words
        report = place.run(path)
        charge = place.charge("rounds")
        assert charge is not None
        assert (charge.state, charge.steps_posted, report.steps) == (ChargeState.POSTED, 5, 5)
        assert charge.plan == CorrelatedPlan.of(Job.load(path).plan).digest
        assert (place.folder / "runs" / "rounds" / "model.safetensors").exists()

        model, updates = torch.nn.Linear(64, 10), list[int]()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.3)
        optimiser.register_step_post_hook(lambda *_: updates.append(1))
        changed = {"id": "looped", "output": place.folder / "runs" / "looped"}
        with attach(model, optimiser, cross_entropy, path, Options(service=place.service), **changed) as run:
            assert isinstance(run, CorrelatedRun)
            for step in run:
                if step == 2:
                    break
            with pytest.raises(Malformed, match=r"^train\.plan: is of correlated noise"):
                run.gradients()
        assert len(updates) == 8
        path.write_text(path.read_text() + RESUME.format(name="rounds"))
        with pytest.raises(Malformed, match=r"^train\.resume: is for other runs"):
            attach(model, optimiser, cross_entropy, Assignment.load(path))


def test_a_proposal_is_pasted_and_runs(tmp_path: Path) -> None:
    """`epsilon job noise` of a job that states its ε: its table is a plan, charged within that ε; also of a stream."""
    with open_place(tmp_path / "place") as place:
        path = place.job("proposed")
        own = re.sub(r"\[train\.plan\].*", "", path.read_text(), flags=re.DOTALL)
        terms = place.service.partition(place.ref)
        delta, relation = Fraction(str(c.members(terms["budget"], "budget")["delta"])), str(terms["relation"])
        for bands, name in ((5, "banded"), (10, "streamed")):
            path.write_text(own + TARGET)
            report = report_noise(path, bands)
            plan = report.found[-1].plan
            path.write_text(own.replace("proposed", name) + _pasted(report.in_words()))
            job = Job.load(path)
            assert job.plan == plan
            assert CorrelatedPlan.of(job.plan).strategy is not None
            assert check_job(job, place.service).quote.permitted
            assert reported_epsilon(job.plan.whole, delta, relation) <= 1
            assert place.run(path).steps == 10 // bands
            charge = place.charge(name)
            assert charge is not None
            assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, 10 // bands)


def _pasted(words: str) -> str:
    """The table that a report for people ends with."""
    return words[words.index("[train.plan]") : words.index("Nothing was recorded.")]
