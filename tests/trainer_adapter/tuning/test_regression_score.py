"""Trials of a regression, judged by the squared error of records held out: priced, noisy, and the least one leaves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from api.demo import digits
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.tuning import TrialScore
from ledger.wire.malformed import Malformed
from ledger.wire.records import convert
from tests.trainer_adapter.live_service import Place, open_place
from tests.trainer_adapter.tuning.test_private_score import LOUD, TAKEN, TERMS, three
from tests.trainer_adapter.tuning.test_private_score import written as written_score
from tests.trainer_adapter.tuning.test_tuning_run import FEW_TRIALS, Seconds
from trainer_adapter.cli.check import check_job
from trainer_adapter.cli.tune import tune_job
from trainer_adapter.job.job_spec import SQUARED_ERROR, Job
from trainer_adapter.layers.tensor_trees import select
from trainer_adapter.statistics.held_out import held_out
from trainer_adapter.statistics.trial_score import HeldOutScore
from trainer_adapter.training.training_records import read_records
from trainer_adapter.tuning.tuning_run import Clock

ERROR = {"bound": "3", "epsilon": "0.5", "kind": "squared_error", "name": "error"}
COLUMNS = {"predicted": "outputs", "truth": "targets"}
SCORED = 'classes = 10\nepsilon = "0.5"\nkind = "confusion_matrix"\nname = "right"\npredicted = "predictions"'
SQUARED = 'bound = "3"\nepsilon = "0.5"\nkind = "squared_error"\nname = "error"\npredicted = "outputs"'


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A policy that permits tuning and what it is judged by."""
    with open_place(tmp_path_factory.mktemp("errors") / "place", mechanisms=TAKEN) as found:
        yield found


def written(place: Place, name: str, *changes: tuple[str, str]) -> Path:
    """The page's job as a regression: which digit it is, as a number."""
    linear = ('["digits-linear", "digits-mlp"]', '["linear"]')
    path = written_score(place, name, FEW_TRIALS, linear, LOUD, *changes)
    text = path.read_text().replace('model = "digits-linear"', f'model = "linear"\nloss = "{SQUARED_ERROR}"', 1)
    path.write_text(text)
    return path


class Constant(nn.Module):
    """Gives one number for every record."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self.number = nn.Parameter(torch.tensor(number))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Shape (records, 1)."""
        return self.number.expand(len(inputs), 1)


def test_a_score_is_the_sum_of_bounded_squares_of_what_did_not_train(place: Place) -> None:
    """Nearly without noise, record by record; a model that gives no number is as bad as can be."""
    job = replace(Job.load(written(place, "summed", (SCORED, SQUARED))), loss=SQUARED_ERROR)
    judge = HeldOutScore(convert(TrialScore, {**TERMS, "metric": {**ERROR, **COLUMNS, "epsilon": "256"}}), job)
    opened = {place.ref: digits.archive(digits.FIRST)}
    inputs, targets = read_records(opened[place.ref], place.ref)
    assert isinstance(targets, torch.Tensor)
    judge.check_model(Constant(0.0), select(inputs, slice(0, 2)))
    judge.hold_out(opened, None, (inputs, targets))
    truth = targets[held_out(opened, Fraction(1, 4))].numpy()
    for number in (0.0, 4.5, 9.0):
        expected = -float(np.square(np.minimum(np.abs(truth - number), 3.0)).sum())
        assert judge.score(Constant(number)) == pytest.approx(expected, abs=3.0)
    assert judge.score(Constant(float("nan"))) == pytest.approx(-9.0 * len(truth), abs=3.0)


def test_trials_of_a_regression_are_judged_in_private(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """From check to model; what is shown is measured on public data."""
    three(monkeypatch)
    path = written(place, "regression", (SCORED, SQUARED))
    checked = check_job(Job.load(path), place.service)
    assert checked.quote.permitted, checked.quote.reasons
    assert "judged by a squared_error of records held out, in that price" in checked.in_words()
    seconds = Seconds()
    report = tune_job(Job.load(path), place.service, lambda _: None, clock=Clock(seconds.now, seconds.wait))
    charge = place.charge("regression")
    assert charge is not None
    assert (charge.state, charge.steps_posted, charge.model) == (ChargeState.POSTED, 1, report.model)
    assert report.measure == SQUARED_ERROR
    assert {*report.point} >= {"learning_rate", "clipping_norm"}


@pytest.mark.parametrize(
    ("new", "refusal"),
    [
        (SCORED, r"plan\.score\.metric\.predictions: is not what this loss's model gives"),
        (SQUARED.replace('"outputs"', '"outputs[1]"'), r"metric\.outputs\[1\]: is not among the 1 numbers"),
        (SQUARED.replace('bound = "3"', 'bound = "0"'), r"plan\.score\.metric\.bound"),
    ],
)
def test_a_score_that_is_none_of_a_regression_is_refused_by_name(place: Place, new: str, refusal: str) -> None:
    """Before anything is sent to be recorded."""
    before = place.kinds()
    with pytest.raises(Malformed, match=refusal):
        tune_job(Job.load(written(place, "wrong", (SCORED, new))), place.service, lambda _: None)
    assert place.kinds() == before
