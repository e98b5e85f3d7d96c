"""Trials in a clean room: one charge and one post whatever number is drawn, and only the best model leaves."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import mpmath
import pytest
import torch
from safetensors import safe_open

from ledger.domain.charge_record import Charge
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.tuning import GEOMETRIC, POISSON, Trials
from ledger.wire.malformed import Malformed
from tests.documentation.fenced_blocks import ROOT, blocks
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.cli.check import check_job
from trainer_adapter.cli.train import MICROBATCH, train_job
from trainer_adapter.cli.tune import TuningReport, tune_job
from trainer_adapter.job.job_spec import Job
from trainer_adapter.job.tuning_terms import Point
from trainer_adapter.job_models.job_model import JobModel
from trainer_adapter.layers.tensor_trees import select
from trainer_adapter.training.attach import attach
from trainer_adapter.training.named_losses import cross_entropy
from trainer_adapter.training.run_options import Options
from trainer_adapter.tuning.points import draw_point, job_at, plan_at
from trainer_adapter.tuning.trial_number import BITS, number_of
from trainer_adapter.tuning.tuning_run import POINT, Candidate, Clock, TuningRun

PAGE, _ = (block.text for block in blocks(ROOT / "docs" / "tuning.md"))
WIDE = mpmath.mp.clone()
WIDE.dps = 90
TRAINING = Plan(Fraction(1, 8), Fraction(16), Fraction(1), 12, 64)
ONE_TRIAL = ('law = "poisson"\nmean = "10"\nmost = 34', 'law = "geometric"\nmean = "1"\nmost = 1')
FEW_TRIALS = ('mean = "10"\nmost = 34', 'mean = "1"\nmost = 12')
MEMBERS_TRIED = ("batch_size_expected", "clipping_norm", "learning_rate", "model")
ONE_MODEL = ('["digits-linear", "digits-mlp"]', '["digits-linear"]')


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A policy that permits tuning."""
    folder = tmp_path_factory.mktemp("tuning") / "place"
    with open_place(folder, mechanisms=["poisson_gaussian", "repeat_and_select"]) as found:
        yield found


class Seconds:
    """A clock that waiting moves, and each look at it by so much."""

    def __init__(self, each: float = 0.0) -> None:
        """At zero."""
        self.at, self.waited, self._each = 0.0, 0.0, each

    def now(self) -> float:
        """Seconds."""
        self.at += self._each
        return self.at

    def wait(self, seconds: float) -> None:
        """They pass."""
        self.at += seconds
        self.waited += seconds


def written(place: Place, name: str, *changes: tuple[str, str]) -> Path:
    """The page's job, with these texts in place of others."""
    path = place.job(name, TRAINING)
    text = path.read_text().split("[train.plan]")[0].replace("deadline_s = ", "deadline_s = 1") + PAGE
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    path.write_text(text)
    return path


def tuned(place: Place, path: Path) -> tuple[TuningReport, Charge, Seconds]:
    """A job of trials, its charge, and the time that it took."""
    seconds = Seconds()
    report = tune_job(Job.load(path), place.service, lambda _: None, clock=Clock(seconds.now, seconds.wait))
    charge = place.charge(report.charge)
    assert charge is not None
    return report, charge, seconds


@pytest.mark.parametrize("trials", [Trials(POISSON, Fraction(5, 2), 20), Trials(GEOMETRIC, Fraction(7, 2), 80)])
def test_a_number_of_trials_is_drawn_from_its_law(trials: Trials) -> None:
    """At both sides of each place where the law at 90 digits says that the number changes; beyond the most none."""
    mean = WIDE.mpf(trials.mean.numerator) / trials.mean.denominator
    below, near = WIDE.mpf(0), 2**20
    for number in range(trials.most + 1):
        if number:
            place = int(WIDE.floor(below * 2**BITS))
            assert number_of(trials, place + near) == number
            assert not place or number_of(trials, place - near) == number - 1
        if trials.law == GEOMETRIC:
            below += (1 - 1 / mean) ** (number - 1) / mean if number else 0
        else:
            below += WIDE.exp(-mean) * mean**number / WIDE.factorial(number)
    assert number_of(trials, 2**BITS - 1) == 0


def test_no_point_costs_more_than_the_plan_that_is_charged() -> None:
    """Fewer records a step are drawn with a smaller probability, exactly; more are refused by name."""
    half = plan_at(TRAINING, {"batch_size_expected": 32, "clipping_norm": Fraction(1, 2), "learning_rate": Fraction(1)})
    assert (half.sampling_probability, half.batch_size_expected) == (Fraction(1, 16), 32)
    assert (half.clipping_norm, half.noise_multiplier, half.steps) == (Fraction(1, 2), Fraction(16), 12)
    with pytest.raises(Malformed, match=r"space\.batch_size_expected: holds 65, and the plan"):
        plan_at(TRAINING, {"batch_size_expected": 65})
    drawn = [draw_point({"learning_rate": (Fraction(1), Fraction(2)), "model": ("a", "b")}) for _ in range(200)]
    assert {tuple(point.values()) for point in drawn} == {(Fraction(a), b) for a in (1, 2) for b in ("a", "b")}


def test_the_page_s_job_is_checked_and_its_price_shown(place: Place) -> None:
    """Nothing is recorded by it."""
    before = place.kinds()
    found = check_job(Job.load(written(place, "checked")), place.service)
    assert found.quote.permitted, found.quote.reasons
    assert "trials: their number is secret, drawn from a poisson law of mean 10, 34 at most" in found.in_words()
    assert "judged by public data; they take 2040 s, as the most do, whatever is drawn" in found.in_words()
    assert place.kinds() == before


def test_whatever_number_is_drawn_the_ledger_sees_the_same(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """None, and three: the same entries, the same time, one step; the default leaves, or the best of three."""
    seen, hardware = [], secrets.randbits
    for name, share in (("none", 0.0), ("three", 0.95)):

        def bits(count: int, share: float = share) -> int:
            return int(share * 2**count) if count == BITS else hardware(count)

        monkeypatch.setattr(secrets, "randbits", bits)
        before = len(place.kinds())
        report, charge, seconds = tuned(place, written(place, name, FEW_TRIALS, ONE_MODEL))
        assert (charge.state, charge.steps_posted, charge.model) == (ChargeState.POSTED, 1, report.model)
        seen.append((place.kinds()[before:], seconds.waited, report.privacy.epsilon.epsilon))
        with safe_open(place.folder / "runs" / name / "model.safetensors", "pt") as file:
            point = json.loads(file.metadata()[POINT])
        assert point == report.to_json()["point"]
        assert (point == {}) == (name == "none")
    assert seen[0] == seen[1]
    kinds, waited, _ = seen[0]
    assert waited == 12 * 60
    assert {kind for kind, _ in kinds} >= {"charge", "post", "model_release", "step_lease"}
    assert sum(kind == "post" for kind, _ in kinds) == 1
    assert point["learning_rate"] in {"0.1", "0.3", "1"}
    assert point["model"] == "digits-linear"


@pytest.mark.parametrize("scores", [(0.9, 0.2, 0.4), (0.2, 0.9, float("nan")), (float("nan"), 0.2, 0.9)])
def test_the_best_trial_leaves_wherever_it_comes(
    place: Place, monkeypatch: pytest.MonkeyPatch, scores: tuple[float, ...]
) -> None:
    """Of three with these scores; no number is the worst. What leaves is the best model, and its point is named."""
    hardware = secrets.randbits
    monkeypatch.setattr(secrets, "randbits", lambda bits: int(0.95 * 2**bits) if bits == BITS else hardware(bits))
    best = scores.index(0.9)
    job = Job.load(written(place, f"best-{best}", FEW_TRIALS, ONE_MODEL))
    default, left, made = JobModel.make(job, torch.device("cpu")), iter(scores), list[tuple[Point, torch.nn.Module]]()

    def candidate(point: Point) -> Candidate:
        model = JobModel.make(job_at(job, point), torch.device("cpu")).model
        if len(point) == len(MEMBERS_TRIED):
            made.append((point, model))
        return Candidate(model, torch.optim.SGD(model.parameters(), lr=0.1), lambda _: next(left))

    seconds = Seconds()
    options = Options(
        service=place.service, read=default.records, example=select(default.test, slice(2)), microbatch=MICROBATCH
    )
    with TuningRun(default.job, candidate, cross_entropy, options, Clock(seconds.now, seconds.wait)) as run:
        assert [*run] == [1]
    assert len(made) == 3
    assert (run.point, run.model) == made[best]
    assert next(left, None) is None


def test_trials_that_take_too_long_are_charged_and_nothing_of_them_leaves(place: Place) -> None:
    """One trial, sure to be drawn: the clock passes its time, the whole charge is posted, without a model."""
    path, seconds = written(place, "slow", ONE_TRIAL), Seconds(each=10)
    with pytest.raises(Malformed, match=r"train\.tuning\.trial_s: is 60, and the trials take longer"):
        tune_job(Job.load(path), place.service, lambda _: None, clock=Clock(seconds.now, seconds.wait))
    charge = place.charge("slow")
    assert charge is not None
    assert (charge.state, charge.steps_posted, charge.model) == (ChargeState.POSTED, 1, None)
    assert not (place.folder / "runs" / "slow" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("old", "new", "refusal"),
    [
        ("[train.tuning]\ntrial_s = 60\n\n[train.tuning.space]\n", "[train.unknown]\n", "unknown"),
        ('learning_rate = ["0.1", "0.3", "1"]', "learning_rate = []", r"tuning\.space\.learning_rate: must be a list"),
        ('["0.1", "0.3", "1"]', '["0.1", "0.1"]', r"tuning\.space\.learning_rate: must have different values"),
        ('["0.1", "0.3", "1"]', '["0.1", "-1"]', r"tuning\.space\.learning_rate\.1: '-1' is negative"),
        ('learning_rate = ["', 'dropout = ["', r"dropout"),
        # What depends on the records is no value: a space is numbers and names in a file that the charge fixes.
        ('["0.1", "0.3", "1"]', '[{statistic = "scale"}]', r"tuning\.space\.learning_rate\.0"),
        ('["0.5", "1"]', '["median"]', r"tuning\.space\.clipping_norm\.0"),
        ("trial_s = 60", 'trial_s = 60\nuntil = "0.9"', r"tuning\.until"),
        ("[32, 64]", "[32, 65]", r"space\.batch_size_expected: holds 65"),
        ("trial_s = 60", "trial_s = 0", r"tuning\.trial_s"),
        ("trial_s = 60", "trial_s = 86400", r"deadline_s: must be more than the 2937600 s"),
        ("most = 34", "most = 20", r"plan\.trials\.most: must be at least 33"),
        ('model = "', 'accuracy_target = "0.9"\nmodel = "', r"accuracy_target"),
        ('"digits-mlp"]', '"digits-nothing"]', r"digits-nothing"),
    ],
)
def test_a_job_that_cannot_be_tuned_is_refused_by_name(place: Place, old: str, new: str, refusal: str) -> None:
    """Before anything is sent to the service."""
    before = place.kinds()
    with pytest.raises(Malformed, match=refusal):
        tune_job(Job.load(written(place, "wrong", (old, new))), place.service, lambda _: None)
    assert place.kinds() == before


def test_other_loops_refuse_a_plan_of_trials(place: Place) -> None:
    """They would train once and stop as they like; and `epsilon tune` takes nothing else."""
    job, model = Job.load(written(place, "elsewhere")), torch.nn.Linear(64, 10)
    with pytest.raises(Malformed, match="is of trials, which `epsilon tune` runs"):
        train_job(job, place.service, lambda _: None)
    with pytest.raises(Malformed, match="is of trials, which `epsilon tune` runs"):
        attach(model, torch.optim.SGD(model.parameters(), 0.1), torch.nn.functional.cross_entropy, job)
    with pytest.raises(Malformed, match="must be of kind 'tuning'"):
        tune_job(Job.load(place.job("plain", TRAINING)), place.service, lambda _: None)
    assert job_at(job, {"learning_rate": Fraction(2), "clipping_norm": Fraction(1, 2)}).plan is job.plan
    # The space is fixed by the file that the charge names.
    assert job.pipeline is not None
    assert job.pipeline.read_text() == (place.folder / "jobs" / "elsewhere.toml").read_text()
