"""The page on answers: its job is charged and sealed, and its commands exist and do what the page says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from ledger.mechanisms.ensembles import EnsemblePlan
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from tests.documentation.fenced_blocks import ROOT, blocks
from tests.trainer_adapter.live_service import open_place
from trainer_adapter.cli.main import app
from trainer_adapter.ensembles.question_file import read_questions, write_labelled
from trainer_adapter.job.job_spec import Job

OWN = "tests/trainer_adapter/ensembles/test_answer_pages.py"
JOB, *SHELL = (block.text for block in blocks(ROOT / "docs" / "answers.md") if block.run_by == OWN)
COMMANDS = "".join(SHELL)


def test_the_job_of_the_page_is_sealed(tmp_path: Path) -> None:
    """By its command; the report says what was charged, and how little of it is known outside."""
    with open_place(tmp_path / "place", mechanisms=["gdp", "poisson_gaussian"]) as place:
        path = place.job("ensemble")
        path.write_text(path.read_text().split("[train.plan]")[0] + JOB)
        plan = EnsemblePlan.of(Job.load(path).plan)
        size = len(place.kinds())
        checked = CliRunner().invoke(app, ["job", "check", str(path), "--json"])
        assert checked.exit_code == 0, checked.stderr
        assert json.loads(checked.stdout)["plan"] == plan.to_json()
        shown = CliRunner().invoke(app, ["job", "check", str(path)]).stdout
        assert "40 teachers of the model digits-linear, chunks by position" in shown
        assert len(place.kinds()) == size
        done = CliRunner().invoke(app, ["ensemble", str(path), "--json"])
        assert done.exit_code == 0, done.stderr
        reported = json.loads(done.stdout)
        assert (reported["teachers"], reported["questions"]) == (plan.teachers, plan.questions)
        assert reported["run_epsilon"] == place.service.run_epsilon("ensemble")["run_epsilon"]
        again = CliRunner().invoke(app, ["ensemble", str(path)])
        assert (again.exit_code, "holds a sealed ensemble already" in again.stderr) == (2, True)


def test_the_commands_of_the_page_exist() -> None:
    """Each with the arguments that the page gives it."""
    names = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    for line in COMMANDS.splitlines():
        program, command, *_ = line.split()
        assert (program, command in names) == ("epsilon", True)
    assert "--room" in COMMANDS
    assert "--end" in COMMANDS


def test_answers_become_the_targets_of_a_students_data(tmp_path: Path) -> None:
    """Without the questions that were screened out; a file that is there is not replaced."""
    rows = [torch.full((2,), float(one)) for one in range(4)]
    np.savez(tmp_path / "asked.npz", inputs=np.stack([one.numpy() for one in rows]))
    requested = read_questions(tmp_path / "asked.npz")
    assert all(torch.equal(one, other) for one, other in zip(requested, rows, strict=True))
    answers: list[c.Object] = [{"class": 3}, {"screened": True}, {"class": 0}, {"class": 9}]
    write_labelled(tmp_path / "student.npz", rows, [{"answer": one, "step": 1} for one in answers])
    with np.load(tmp_path / "student.npz") as held:
        assert held["inputs"].tolist() == [[0, 0], [2, 2], [3, 3]]
        assert held["targets"].tolist() == [3, 0, 9]
    with pytest.raises(FileExistsError):
        write_labelled(tmp_path / "student.npz", rows[:1], [{"answer": answers[0]}])
    with pytest.raises(Malformed, match="all questions were screened out"):
        write_labelled(tmp_path / "none.npz", rows[:1], [{"answer": answers[1]}])
    write_labelled(tmp_path / "means.npz", rows[:2], [{"answer": {"values": ["0.5", "1"]}}] * 2)
    with np.load(tmp_path / "means.npz") as held:
        assert held["targets"].tolist() == [[0.5, 1.0]] * 2
    (tmp_path / "no.npz").write_bytes(b"nothing")
    with pytest.raises(Malformed, match="must be a NumPy archive"):
        read_questions(tmp_path / "no.npz")
