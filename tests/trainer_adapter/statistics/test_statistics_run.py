"""Statistics in a clean room, against a real service: one charge, one post, and answers that leave as a model does."""

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
from typer.testing import CliRunner

from api.demo import digits
from client.dataset_files.sealed_records import RecordLayout, write_sealed
from client.http.problems import Refused
from ledger.commands.entry import Entry
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.plan_reader import parse_plan
from ledger.mechanisms.statistics_plans import StatisticsPlan
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from tests.documentation.fenced_blocks import ROOT, blocks
from tests.trainer_adapter.live_service import PLAN, Place, open_place
from trainer_adapter.cli.main import app
from trainer_adapter.job.job_spec import Assignment, Job
from trainer_adapter.statistics.columns import RecordColumns
from trainer_adapter.statistics.statistics_run import run_statistics
from trainer_adapter.training.preprocessing_constants import PreparedConstants

PIXELS = "".join(
    f'[[train.plan.statistics.columns]]\ncolumn = "inputs[{place}]"\nlower = "0"\nupper = "1"\n' for place in range(64)
)
PAGE = blocks(ROOT / "docs" / "statistics.md")
COMMAND, ASKED = (block.text for block in PAGE[:2])
(CONSTANTS,) = (block.text for block in PAGE if "bank-a-statistics-1" in block.text)
SCALE = f'[[train.plan.statistics]]\nkind = "moments"\nname = "scale"\nrho = "0.01"\n{PIXELS}'
ONE = '[[train.plan.statistics]]\nkind = "count"\nname = "rows"\nepsilon = "0.1"\n'


TAKEN: list[c.Json] = ["poisson_gaussian", "pure", "zcdp"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A service whose partition is the digits."""
    with open_place(tmp_path_factory.mktemp("asked") / "place", mechanisms=TAKEN) as found:
        yield found


def _job(place: Place, name: str, asked: str = ONE, relation: str = "REPLACE_SPECIAL", extra: str = "") -> Path:
    path = place.assignment_file(name)
    (head, _) = path.read_text().split("[train.plan]")
    plan = "" if "[train.plan]" in asked else f'[train.plan]\nkind = "statistics"\nrelation = "{relation}"\nv = 1\n'
    path.write_text(head.replace("[train]\n", f"[train]\n{extra}", 1) + plan + asked)
    return path


def _invoke(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [*words])
    return done.exit_code, done.stdout, done.stderr


def _records() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    with np.load(io.BytesIO(digits.archive(digits.FIRST))) as held:
        return held["inputs"].astype(np.float64), held["targets"]


def test_statistics_are_charged_answered_and_released(place: Place) -> None:
    """Told ε is the charge's; each answer is near the truth; a training run is scaled by what was released."""
    assert COMMAND == "epsilon statistics statistics.toml\n"
    code, reported, errors = _invoke("statistics", str(_job(place, "asked", ASKED)), "--json")
    assert code == 0, errors
    report = json.loads(reported)
    kinds = [kind for kind, _ in place.kinds() if kind != "step_lease"]
    assert kinds[-5:] == ["charge", "key_release", "post", "release_notice", "model_release"]
    charge = place.charge("asked")
    assert charge is not None
    assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, 4)
    assert (report["steps"], report["steps_charged"]) == (4, 4)
    assert report["run_epsilon"] == place.service.run_epsilon("asked")["run_epsilon"]
    path = place.folder / "runs" / "asked" / "model.safetensors"
    with safe_open(path, framework="numpy") as held:
        about, found = held.metadata(), {name: held.get_tensor(name) for name in held.keys()}  # noqa: SIM118 - no mapping
    plan = StatisticsPlan.of(parse_plan(json.loads(about["statistics"])))
    assert (about["charge"], about["plan"], charge.plan) == ("asked", plan.digest, plan.digest)
    # What an auditor reads of the charge names each statistic too.
    entry = Entry.parse(place.service.entry(charge.index))
    assert StatisticsPlan.of(parse_plan(entry.request["plan"])) == plan
    _check_answers(found)


def test_a_training_run_is_scaled_by_what_was_released(place: Place) -> None:
    """By the moments that its job names; another answer holds no means."""
    run_statistics(Assignment.load(_job(place, "bank-a-statistics-1", SCALE)), place.service, lambda _: None)
    job = place.job("scaled")
    job.write_text(job.read_text() + CONSTANTS)
    assert place.run(job).steps == PLAN.steps
    known = Job.load(job)
    constants = PreparedConstants.load(known.preprocessing, place.service, known.log)
    inputs, _ = _records()
    ((_, held),) = constants.items
    # Sums have Gaussian noise of √(129/0.02) = 80, so means of half-widths 1/2 are off by 80/700/2 = 0.057.
    assert (held["mean"].dtype, held["deviation"].shape) == (torch.float32, (64,))
    assert np.abs(held["mean"].numpy() - inputs.mean(axis=0)).max() < 7 * 0.06
    assert constants.inputs(held["mean"][None]).abs().max() == 0
    other = place.job("other")
    other.write_text(other.read_text() + CONSTANTS.replace('"scale"', '"median"'))
    with pytest.raises(Malformed, match=r"has no tensor median.mean"):
        place.run(other)
    assert place.charge("other") is None


def _check_answers(found: dict[str, np.ndarray[Any, Any]]) -> None:
    inputs, targets = _records()
    # A Laplace number of scale 5 passes 125 with probability e^-25.
    assert abs(int(found["rows"][0]) - len(targets)) < 125
    assert (np.abs(found["classes"] - np.bincount(targets, minlength=10)) < 125).all()
    assert found["median"][0] in {0.1, 0.3, 0.5, 0.7, 0.9}
    pixels = inputs[:, [28, 36]]
    # Sums have Gaussian noise of √(5/0.02) = 16, so means of half-widths 1/2 are off by 0.012.
    assert np.abs(found["scale.mean"] - pixels.mean(axis=0)).max() < 7 * 0.012
    assert np.abs(found["scale.variance"] - pixels.var(axis=0)).max() < 0.1
    assert (found["scale.deviation"] ** 2).tolist() == pytest.approx(found["scale.variance"].tolist())


def test_a_partition_of_another_relation_refuses(place: Place) -> None:
    """By the price, and nothing is charged."""
    job = Assignment.load(_job(place, "other-relation", relation="REPLACE_ONE"))
    with pytest.raises(Refused) as refused:
        run_statistics(job, place.service, lambda _: None)
    assert "holds under REPLACE_ONE, and not under REPLACE_SPECIAL" in str(refused.value)
    assert place.charge("other-relation") is None


def test_a_run_that_breaks_posts_what_began(place: Place) -> None:
    """A column that the records do not have is named; the step that began counts."""
    more = ONE.replace('"rows"', '"more"').replace("count", "histogram") + 'column = "inputs[64]"\nedges = ["0"]\n'
    with pytest.raises(Malformed, match="is not among the 64 numbers of a record"):
        run_statistics(Assignment.load(_job(place, "broken", ONE + more)), place.service, lambda _: None)
    charge = place.charge("broken")
    assert charge is not None
    assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, 2)
    assert not (place.folder / "runs" / "broken" / "model.safetensors").exists()


def test_records_that_do_not_fit_count_as_begun(place: Place) -> None:
    """Sealed with their form, they cost the block that would have come first; in one piece the charge stands."""
    sealed, (inputs, targets) = place.sealed.read_bytes(), _records()
    rows = np.zeros(len(inputs), [("inputs", "<f8", (64,)), ("targets", "|b1")])
    with place.sealed.open("wb") as file:
        write_sealed(file, place.data_key, place.ref, RecordLayout(rows.dtype), [rows])
    for name, state, posted in (("described", ChargeState.POSTED, 1), ("one-piece", ChargeState.PENDING, None)):
        with pytest.raises(Malformed, match="must hold numbers as inputs and as targets"):
            run_statistics(Assignment.load(_job(place, name)), place.service, lambda _: None)
        charge = place.charge(name)
        assert charge is not None
        assert (charge.state, charge.steps_posted) == (state, posted)
        place.put(inputs=inputs, targets=targets > 0)
    place.sealed.write_bytes(sealed)


def test_each_command_takes_its_own_plans(place: Place) -> None:
    """And a killed run of statistics is not resumed; nothing is recorded."""
    size = len(place.kinds())
    code, _, errors = _invoke("statistics", str(place.assignment_file("trained")))
    assert (code, "another kind of plan" in errors) == (2, True)
    job = place.job("asked-as-training")
    plan = f'[train.plan]\nkind = "statistics"\nrelation = "ADD_OR_REMOVE_ONE"\nv = 1\n{ONE}'
    job.write_text(job.read_text().split("[train.plan]")[0] + plan)
    with pytest.raises(Malformed, match="another kind of plan"):
        Job.load(job)
    (place.folder / "keys" / "resume.bin").write_bytes(bytes(32))
    resumed = _job(place, "resumed", ONE + '[train.resume]\nkey = "../keys/resume.bin"\nevery_s = 0\n')
    with pytest.raises(Malformed, match="what is killed stays charged"):
        run_statistics(Assignment.load(resumed), place.service, lambda _: None)
    assert len(place.kinds()) == size


def test_users_count_with_as_many_records_as_are_priced(tmp_path: Path) -> None:
    """Who has more counts with the first ones; without a number of them nothing is charged."""
    with open_place(tmp_path / "users", unit="user", mechanisms=TAKEN) as found:
        with pytest.raises(Malformed, match=r"unit_records_max: is missing: the unit of .* is the user"):
            run_statistics(Assignment.load(_job(found, "unsaid")), found.service, lambda _: None)
        assert found.charge("unsaid") is None
        inputs, targets = _records()
        found.put(inputs=inputs, targets=targets, users=np.arange(len(targets)) // 7)
        asked = ONE.replace("0.1", "0.4")
        job = Assignment.load(_job(found, "users", asked, extra="unit_records_max = 2\n"))
        report = run_statistics(job, found.service, lambda _: None)
        # 100 users with two each: five more each would be 700.
        assert abs(float(report.answers["rows"]) - 200) < 80
        epsilon = report.privacy.epsilon.epsilon
        assert epsilon is not None
        assert Fraction(79, 100) < epsilon <= Fraction(8, 10)


def _columns(**held: np.ndarray[Any, Any]) -> RecordColumns:
    file = io.BytesIO()
    np.savez(file, **held)  # type: ignore[arg-type] # names of arrays
    return RecordColumns({"did:web:h.example/d/p": file.getvalue()})


def test_columns_are_named_by_part_and_place() -> None:
    """Of one array or several; what is not there is named, and what has several numbers needs a place."""
    plain = _columns(inputs=np.arange(6.0).reshape(2, 3), targets=np.array([4, 5]))
    assert (plain.records, plain.values("inputs[2]").tolist(), plain.values("targets").tolist()) == (2, [2, 5], [4, 5])
    parts = {"inputs.age": np.array([1.0, np.nan]), "inputs.x": np.zeros((2, 2)), "targets": np.zeros(2)}
    named = _columns(**parts)
    assert named.values("inputs.age")[0] == 1
    assert np.isnan(named.values("inputs.age")[1])
    for known, column, words in (
        (plain, "inputs", "has 3 numbers a record: name one"),
        (plain, "inputs[3]", "is not among the 3 numbers"),
        (plain, "inputs.age", "is no array of these records"),
        (named, "inputs.pay", "is no array of these records"),
        (named, "inputs[0]", "is no array of these records"),
        (plain, "secret", "is no column"),
    ):
        with pytest.raises(Malformed, match=words):
            known.values(column)
