"""One job of ``epsilon tune``: trials of its declared space, of which the best model leaves."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from typing import Any

from client.service.service import Service
from ledger.accounts.run_epsilon import ChargeEpsilon
from ledger.mechanisms.tuning import TuningPlan
from ledger.wire.canonical_json import Object
from ledger.wire.malformed import Malformed
from trainer_adapter.cli.train import MICROBATCH, best_device, measure_in_words
from trainer_adapter.job.job_spec import SQUARED_ERROR, Job
from trainer_adapter.job.tuning_terms import Point
from trainer_adapter.job_models.job_model import JobModel
from trainer_adapter.job_models.model_trial import try_models
from trainer_adapter.layers.tensor_trees import select
from trainer_adapter.session.model_release import Pause
from trainer_adapter.session.protocol import Say
from trainer_adapter.statistics.trial_score import HeldOutScore
from trainer_adapter.training.named_losses import LOSS_BY_NAME, optimiser_of
from trainer_adapter.training.preprocessing_constants import PreparedConstants
from trainer_adapter.training.run_options import Options
from trainer_adapter.tuning.points import job_at
from trainer_adapter.tuning.tuning_run import Candidate, Clock, TuningRun, point_json


@dataclass(frozen=True, slots=True)
class TuningReport:
    """What may be known outside: how many trials ran is not among it.

    Attributes:
        accuracy: of the best model on the public test set; of a regression the mean squared error.
        model: the released model's SHA-256, or empty if its release was refused.
        point: the values of the best trial; empty if the default left.
    """

    accuracy: float
    charge: str
    measure: str
    model: str
    point: Point
    privacy: ChargeEpsilon

    def to_json(self) -> Object:
        """For programs."""
        whole, figures = self.privacy.epsilon, self.privacy.to_json()
        own: dict[str, Any] = {"charge": self.charge, self.measure: self.accuracy, "model": self.model}
        point: Object = {**point_json(self.point)}
        return {**own, "point": point, **figures, "epsilon": whole.number, "partition": whole.partition}

    def in_words(self) -> str:
        """For people."""
        values = ", ".join(f"{name} = {value}" for name, value in point_json(self.point).items())
        best = f"best trial: {values}" if values else "no trial ran, so the untrained default left"
        measured = measure_in_words(self.measure, self.accuracy)
        return "\n  ".join((f"{self.charge}: {measured} on the public test set", best, *self.privacy.in_words))


def tune_job(
    job: Job, service: Service, say: Say, pause: Pause | None = None, clock: Clock | None = None
) -> TuningReport:
    """One job with a table ``[train.tuning]``, from its charge to its model.

    Args:
        service: as the consumer calls it.
        say: receives one line for each stage.
        pause: waits some seconds: with it the run stays until its providers' notice of the model has run.
        clock: the time that the run takes, and how it waits.

    Raises:
        Refused: if the charge or the key is. Malformed, OSError, Unreachable.
    """
    try_models(job)
    run = tuning_run(job, Options(service=service, say=say, pause=pause), clock)
    with run:
        until = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=run.duration_s)
        say(f"the trials end at {until:%Y-%m-%d %H:%M:%S} UTC or a little later, however many there are")
        for _ in run:
            pass
    made = JobModel.make(job_at(job, run.point), best_device())
    right = replace(made, model=run.model).measure(run.constants.inputs(made.test[0]))
    return TuningReport(right, job.id, job.measure, run.release(), run.point, run.privacy)


def tuning_run(job: Job, options: Options, clock: Clock | None = None) -> TuningRun:
    """The run of a job with a table ``[train.tuning]``. Raises: Malformed, OSError."""
    if job.tuning is None:
        raise Malformed("train.plan", "must be of kind 'tuning': `epsilon train` runs a job of one training")
    device = best_device()
    default = JobModel.make(job, device)

    def candidate(point: Point) -> Candidate:
        made = JobModel.make(job_at(job, point), device) if point else default

        def score(constants: PreparedConstants) -> float:
            found = made.measure(constants.inputs(made.test[0]))
            return -found if job.loss == SQUARED_ERROR else found

        return Candidate(made.model, optimiser_of(made.job, made.model), score)

    known = replace(
        options,
        read=default.records,
        example=select(default.test, slice(2)),
        microbatch=MICROBATCH,
        records_per_user_max=job.records_per_user_max,
    )
    terms = TuningPlan.of(job.plan).score
    judge = None if terms is None else HeldOutScore(terms, default.job)
    return TuningRun(default.job, candidate, LOSS_BY_NAME[job.loss], known, clock, judge)
