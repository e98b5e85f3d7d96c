"""A run of stages against a real service: one charge, one post, and answers that leave with the model or not at all."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from api.demo import digits
from client.http.problems import Refused
from ledger.accounting.epsilon_report import report_epsilon
from ledger.commands.entry import Entry
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.plan_reader import parse_plan
from ledger.mechanisms.statistics_plans import StagedPlan
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from tests.documentation.fenced_blocks import ROOT, blocks
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.cli.check import check_job
from trainer_adapter.cli.evaluate import measure
from trainer_adapter.cli.train import best_device, run_of, train_job
from trainer_adapter.job.job_spec import Job
from trainer_adapter.job.preprocessing import OwnStatistic
from trainer_adapter.job_models.job_model import JobModel
from trainer_adapter.layers.tensor_trees import select
from trainer_adapter.statistics.held_out import held_out
from trainer_adapter.statistics.staged_run import StagedRun, attach_stages
from trainer_adapter.training.attach import attach
from trainer_adapter.training.named_losses import cross_entropy
from trainer_adapter.training.run_options import Options

PIXELS = 64
(PAGE,) = (one.text for one in blocks(ROOT / "docs" / "statistics.md") if '"staged"' in one.text)
TAKEN: list[c.Json] = ["poisson_gaussian", "pure", "zcdp"]
TRAINING = Plan(Fraction(1, 4), Fraction(8), Fraction(1), 12, digits.RECORDS // 4)
SCALED = '\n[[train.preprocessing]]\nkind = "normalise"\nstatistic = "scale"\n'
SCALE: dict[str, Any] = {
    "columns": [{"column": f"inputs[{place}]", "lower": "0", "upper": "1"} for place in range(PIXELS)],
    "kind": "moments",
    "name": "scale",
    "rho": "0.01",
}
MATRIX: dict[str, Any] = {
    "classes": 10,
    "epsilon": "0.4",
    "kind": "confusion_matrix",
    "name": "matrix",
    "predicted": "predictions",
    "truth": "targets",
}
ROWS: dict[str, Any] = {"epsilon": "0.2", "kind": "count", "name": "rows"}


def staged(**changed: Any) -> StagedPlan:  # noqa: ANN401 - JSON
    """Moments of all pixels, twelve steps, and a confusion matrix of a third of the records."""
    whole = {
        "held_out": "0.33",
        "kind": "staged",
        "metrics": [MATRIX],
        "relation": "REPLACE_SPECIAL",
        "statistics": [ROWS, SCALE],
        "training": TRAINING.to_json(),
        "v": 1,
    }
    return StagedPlan.of(parse_plan({name: one for name, one in {**whole, **changed}.items() if one is not None}))


def written(place: Place, name: str, plan: StagedPlan, more: str = SCALED) -> Path:
    """A job with this plan, in TOML: JSON's strings, numbers, lists and tables on one line are TOML's."""
    path = place.job(name, TRAINING)
    head, _ = path.read_text().split("[train.plan]")
    path.write_text(head.replace("[train.attester]", f"plan = {_toml(plan.to_json())}\n\n[train.attester]") + more)
    return path


def _toml(value: c.Json) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {_toml(one)}" for name, one in value.items()) + "}"
    return f"[{', '.join(map(_toml, value))}]" if isinstance(value, list) else json.dumps(value)


def _begun(place: Place, job: Path, options: Options | None = None) -> StagedRun:
    made = JobModel.make(Job.load(job), best_device())
    given = options or Options(service=place.service, example=select(made.test, slice(2)))
    run = run_of(made, given)
    assert isinstance(run, StagedRun)
    return run


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A service whose partition is the digits."""
    with open_place(tmp_path_factory.mktemp("staged") / "place", mechanisms=TAKEN) as found:
        yield found


def _kept(path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    with safe_open(path, framework="numpy") as held:
        about = held.metadata()
    return about, {name: np.array(value) for name, value in json.loads(about["answers"]).items()}


def test_all_stages_are_one_charge_and_one_post(place: Place) -> None:
    """The ε that is told before, charged, and in the model's file is one: of all stages, composed once."""
    plan = staged()
    job = Job.load(written(place, "whole", plan))
    checked = check_job(job, place.service)
    assert checked.quote.permitted
    assert "2 statistics before and 1 metrics after the training, 15 steps in all, one price" in checked.in_words()
    report = train_job(job, place.service, lambda _: None)
    kinds = [kind for kind, _ in place.kinds() if kind != "step_lease"]
    assert kinds[-5:] == ["charge", "key_release", "post", "release_notice", "model_release"]
    charge = place.charge("whole")
    assert charge is not None
    assert (charge.state, charge.steps_posted, charge.plan) == (ChargeState.POSTED, plan.steps, plan.digest)
    assert (report.steps, report.steps_charged) == (15, 15)
    assert StagedPlan.of(parse_plan(Entry.parse(place.service.entry(charge.index)).request["plan"])) == plan
    reported = report.privacy.epsilon
    assert reported.epsilon == report_epsilon(plan.whole, reported.delta, "REPLACE_SPECIAL").epsilon
    assert report.to_json()["run_epsilon"] == place.service.run_epsilon("whole")["run_epsilon"]
    about, found = _kept(place.folder / "runs" / "whole" / "model.safetensors")
    assert StagedPlan.of(parse_plan(json.loads(about["statistics"]))) == plan
    assert set(report.answers or {}) == set(found) == {"rows", "matrix", *(f"scale.{one}" for one in _MOMENTS)}
    _check_answers(found)


_MOMENTS = ("count", "deviation", "mean", "variance")


def _check_answers(found: dict[str, Any]) -> None:
    archive = digits.archive(digits.FIRST)
    out = held_out({"did:web:hospital.demo.invalid/digits/2026-q3": archive}, Fraction(33, 100)).numpy()
    with np.load(io.BytesIO(archive)) as held:
        inputs, targets = held["inputs"].astype(np.float64)[~out], held["targets"][out]
    # Laplace numbers of scale 5, and of scale 5/2 in a hundred cells.
    assert abs(int(found["rows"][0]) - len(inputs)) < 125
    assert np.abs(found["scale.mean"] - inputs.mean(axis=0)).max() < 7 * 0.08
    assert abs(int(found["matrix"].sum()) - len(targets)) < 10 * 2.5 * np.sqrt(2 * 100)
    assert np.abs(found["matrix"].sum(axis=1) - np.bincount(targets, minlength=10)).max() < 25 * 2.5


@pytest.mark.parametrize(("stage", "begun"), [("statistics", 10), ("metrics", 15)])
def test_a_stage_that_breaks_posts_what_began(place: Place, stage: str, begun: int) -> None:
    """A column that the records do not have ends the run; all steps of its lease count, and no model leaves."""
    broken = {"column": "inputs[64]", "edges": ["0"], "epsilon": "0.2", "kind": "histogram", "name": "broken"}
    plan = staged(**{stage: [ROWS, broken] if stage == "statistics" else [{**broken}]})
    job = written(place, f"broken-{stage}", plan, more="" if stage == "statistics" else SCALED)
    with pytest.raises(Malformed, match="is not among the 64 numbers of a record"):
        train_job(Job.load(job), place.service, lambda _: None)
    charge = place.charge(f"broken-{stage}")
    assert charge is not None
    assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, begun)
    assert not (place.folder / "runs" / f"broken-{stage}" / "model.safetensors").exists()


def test_a_loop_that_is_left_takes_no_metric(place: Place) -> None:
    """Metrics are of the whole training; what was taken before is posted, and leaves with the model."""
    run = _begun(place, written(place, "left", staged()))
    with run:
        for step in run:
            if step == 5:
                break
    assert run.release()
    assert {name.partition(".")[0] for name in run.answers} == {"rows", "scale"}
    charge = place.charge("left")
    assert charge is not None
    assert charge.steps_posted is not None
    assert 5 <= charge.steps_posted < 15


def test_at_level_2_answers_stay_with_the_model(tmp_path: Path) -> None:
    """Nothing of them is told; the sealed model is measured with the constants that the run took."""
    with open_place(tmp_path / "sealed", mechanisms=TAKEN, level=2, model_release=False) as found:
        job, said = Job.load(written(found, "sealed", staged())), list[str]()
        report = train_job(job, found.service, said.append)
        assert (report.model, report.answers) == ("", {})
        assert not any("scale" in line or "matrix" in line for line in said)
        folder = found.folder / "runs" / "sealed"
        assert not (folder / "model.safetensors").exists()
        opened = measure(job, found.service, lambda _: None)
        assert opened.accuracy == pytest.approx(report.accuracy)


def test_a_killed_run_goes_on_after_its_statistics_and_not_before(place: Place) -> None:
    """Answers that a dead process had sealed are used again; those that it lost are charged."""
    resume = '\n[train.resume]\nkey = "../keys/staged.room"\nevery_s = 0\n'
    job = written(place, "killed", staged(), SCALED + resume)
    first = _begun(place, job)
    first.open()
    assert first.checkpoints is not None
    taken = {name: value.clone() for name, value in first.answers.items()}
    _die(first)
    made = JobModel.make(Job.load(job), best_device())
    again = _begun(place, job, Options(service=place.service, example=select(made.test, slice(2)), resume=True))
    with again:
        for _ in again:
            pass
    assert again.release()
    assert {name: value.tolist() for name, value in taken.items()}.items() <= {
        name: value.tolist() for name, value in again.answers.items()
    }.items()
    charge = place.charge("killed")
    assert charge is not None
    assert charge.steps_posted == 15

    lost = written(place, "lost", staged(), SCALED + resume.replace("staged.room", "lost.room"))
    first = _begun(place, lost)
    first.open()
    (place.folder / "runs" / "lost" / "run.state").unlink()
    _die(first)
    again = _begun(place, lost, Options(service=place.service, example=select(made.test, slice(2)), resume=True))
    with pytest.raises(Malformed, match="statistics: had begun when the process died"), again:
        again.open()
    charge = place.charge("lost")
    assert charge is not None
    assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, charge.steps_posted)
    assert (charge.steps_posted or 0) >= 2


def _die(run: StagedRun) -> None:
    """What the end of a process does: files and locks are let go, and nothing is posted."""
    run._stack.close()  # noqa: SLF001 - the operating system would


REFUSED: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"statistics": [{**SCALE, "columns": SCALE["columns"][:3]}]}, SCALED, "must be of each of the 64 inputs in order"),
    ({"statistics": [ROWS]}, SCALED, "scale is none of the moments"),
    ({}, SCALED + '\n[[train.preprocessing]]\nkind = "vocabulary"\nstatistic = "scale"\n', "must be one of normalise"),
    ({"metrics": [{**MATRIX, "predicted": "outputs[10]"}]}, SCALED, "is not among the 10 numbers that the model gives"),
    ({"metrics": [{**MATRIX, "predicted": "outputs"}]}, SCALED, "has 10 numbers a record"),
    ({"relation": "ADD_OR_REMOVE_ONE"}, SCALED, "holds under ADD_OR_REMOVE_ONE, and not under REPLACE_SPECIAL"),
)


@pytest.mark.parametrize(("change", "more", "words"), REFUSED)
def test_what_is_refused_before_the_charge(place: Place, change: dict[str, Any], more: str, words: str) -> None:
    """By name, and nothing is charged."""
    name = f"refused-{REFUSED.index((change, more, words))}"
    with pytest.raises((Malformed, Refused)) as refused:
        train_job(Job.load(written(place, name, staged(**change), more)), place.service, lambda _: None)
    assert words in str(refused.value)
    assert place.charge(name) is None


def test_the_page_has_a_job_of_stages(place: Place) -> None:
    """Its plan and its preprocessing are a job's, and are those of the COVID scenario's kinds."""
    path = place.job("page", TRAINING)
    path.write_text(path.read_text().split("[train.plan]")[0] + PAGE)
    job = Job.load(path)
    plan = StagedPlan.of(job.plan)
    assert [one.name for one in (*plan.statistics, *plan.metrics)] == ["scale", "roc"]
    assert (plan.steps, plan.held_out, job.training.steps) == (188, Fraction(3, 10), 186)
    assert [one.source for one in job.preprocessing] == [OwnStatistic("scale")]


def test_a_loop_of_ones_own_takes_all_stages(place: Place) -> None:
    """With the loop in one's own hands; its ε is that of the plan."""
    path = written(place, "own-stages", staged())
    made = JobModel.make(Job.load(path), best_device())
    optimiser = torch.optim.SGD(made.model.parameters(), lr=0.3)
    options = Options(service=place.service, example=select(made.test, slice(2)))
    with pytest.raises(Malformed, match="loss_name: must be one of"):
        attach_stages(made.model, optimiser, cross_entropy, path, options, loss_name="hinge")
    with attach_stages(made.model, optimiser, cross_entropy, path, options, loss_name="cross_entropy") as run:
        taken = [*run]
    assert taken == [*range(3, 15)]
    assert {name.partition(".")[0] for name in run.answers} == {"rows", "scale", "matrix"}
    charge = place.charge("own-stages")
    assert charge is not None
    assert (charge.steps_posted, run.release() != "") == (15, True)


def test_a_loop_without_stages_takes_none(place: Place) -> None:
    """It would train without them."""
    made = JobModel.make(Job.load(written(place, "own-loop", staged())), best_device())
    with pytest.raises(Malformed, match=r"train.plan: is of stages"):
        attach(made.model, None, cross_entropy, made.job)  # type: ignore[arg-type] # refused before it is looked at
    path = written(place, "target", staged())
    path.write_text(path.read_text().replace("[train]\n", '[train]\naccuracy_target = "0.9"\n'))
    with pytest.raises(Malformed, match="accuracy_target: is for a run without metrics"):
        Job.load(path)
