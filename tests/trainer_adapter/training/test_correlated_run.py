"""A run with correlated noise against a real service: charged, leased and posted by the round, and never resumed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.correlated import CorrelatedPlan
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.killed_runs import RESUME
from tests.trainer_adapter.live_service import open_place
from trainer_adapter.cli.check import check_job
from trainer_adapter.job.job_spec import Assignment, Job
from trainer_adapter.training.attach import attach
from trainer_adapter.training.correlated_run import CorrelatedRun
from trainer_adapter.training.run_options import Options

PAGE = Path(__file__).parents[3] / "docs" / "correlated_noise.md"


def test_rounds_are_charged_posted_and_never_resumed(tmp_path: Path) -> None:
    """The page's plan, in a job as it stands: five rounds of four updates, one model."""
    (plan,) = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
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
