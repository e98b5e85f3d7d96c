"""``epsilon job check``: everything that a job names is tried before anything is charged; nothing is recorded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

import torch
from torch import nn

from client.http.problems import Refused
from client.service.service import Service
from ledger.domain.exit_codes import ExitCode
from ledger.mechanisms.audited_plan import AuditedPlan
from ledger.mechanisms.correlated.correlated_plan import CorrelatedPlan
from ledger.mechanisms.statistics_plans import StagedPlan
from ledger.mechanisms.tuning import TuningPlan
from ledger.wire.canonical_json import Object
from ledger.wire.exact_numbers import format_number
from ledger.wire.malformed import Malformed
from trainer_adapter.cli.attester_check import check_attester
from trainer_adapter.cli.audit import audited_run
from trainer_adapter.cli.train import best_device, run_of
from trainer_adapter.cli.tune import tuning_run
from trainer_adapter.job.job_spec import Job
from trainer_adapter.job_models.job_model import JobModel
from trainer_adapter.job_models.model_trial import try_models
from trainer_adapter.layers.tensor_trees import TensorTree, arguments, count_records, map_tensors, select
from trainer_adapter.run.run_folder import refuse_used_output
from trainer_adapter.session.noise_choice import trial_plan_for
from trainer_adapter.session.quote_report import QuoteReport
from trainer_adapter.training.model_run import ModelRun
from trainer_adapter.training.named_losses import LOSS_BY_NAME
from trainer_adapter.training.run_options import Loss, Options

EXAMPLES_MAX: Final = 200
_DIGITS: Final = 2


@dataclass(frozen=True, slots=True)
class JobCheck:
    """What was found of a job.

    Attributes:
        job: as it would run. parameters: how many numbers train. test: how many public records there are.
        clipping: the recommended clipping norm. quote: what its charge would get now.
    """

    job: Job
    parameters: int
    test: int
    clipping: str
    quote: QuoteReport

    def to_json(self) -> Object:
        """For programs."""
        return {
            "charge": self.job.id,
            "clipping_norm_recommended": self.clipping,
            "parameters": self.parameters,
            "permitted": self.quote.permitted,
            "plan": self.job.plan.to_json(),
            "reasons": [{"code": reason.code, "detail": reason.detail} for reason in self.quote.reasons],
            "test_records": self.test,
        }

    def in_words(self) -> str:
        """For people."""
        whole = self.job.plan
        plan = whole.training if isinstance(whole, TuningPlan | AuditedPlan) else self.job.training
        stages: tuple[str, ...] = ()
        if isinstance(whole, TuningPlan):
            trials = whole.trials
            law = f"{trials.law} law of mean {format_number(trials.mean)}"
            score = whole.score
            private = "" if score is None else f"a {score.metric.to_json()['kind']} of records held out, in that price"
            stages = (
                f"trials: their number is secret, drawn from a {law}, {trials.most} at most, one price",
                f"  judged by {private or 'public data'}; {_seconds(self.job, trials.most)}",
            )
        if isinstance(whole, AuditedPlan):
            stages = (f"audit: {whole.canaries} canaries, of which {whole.guesses} are guessed, at no price",)
        if isinstance(whole, CorrelatedPlan):
            rounds = f"{whole.steps} rounds of {whole.bands} steps, charged by the round"
            stream = f"a stream of {whole.bands} steps, charged as one"
            stages = (f"correlated noise: {stream if whole.steps == 1 else rounds}",)
        if isinstance(whole, StagedPlan):
            parts = f"{len(whole.statistics)} statistics before and {len(whole.metrics)} metrics after the training"
            stages = (f"stages: {parts}, {whole.steps} steps in all, one price",)
        lines = (
            f"{self.job.id}: model {self.job.model}, {self.parameters} trained parameters, loss {self.job.loss},",
            f"  optimiser {self.job.optimiser}; {self.test} public test records",
            f"plan: {plan.steps} steps, noise multiplier {format_number(plan.noise_multiplier)}, clipping norm",
            f"  {format_number(plan.clipping_norm)}, about {plan.batch_size_expected} records a step",
            *stages,
            f"clipping norm recommended: {self.clipping}, the median norm of a public record's gradient at the first",
            "  weights: a smaller one distorts most records, a larger one adds noise for nothing",
            str(self.quote),
            "Nothing was recorded.",
        )
        return "\n".join(lines)


def _seconds(job: Job, most: int) -> str:
    assert job.tuning is not None
    return f"they take {most * job.tuning.trial_s} s, as the most do, whatever is drawn"


def load_for_check(path: Path) -> Job:
    """A job whose clipping norm may be missing. Raises: Malformed, Refused, Unreachable, OSError."""
    return Job.load(path, trial_plan_for)


def check_job(job: Job, service: Service) -> JobCheck:
    """Try id, output, attester, model, data files, test set, loss and plan.

    Raises:
        Malformed, Refused, Unreachable, OSError.
    """
    if job.resume is None:
        _refuse_used_names(job, service)
    check_attester(job, service)
    try_models(job)
    made = JobModel.make(job, best_device())
    inputs, targets = made.test
    example = select((inputs, targets), slice(2))
    options = Options(service=service, example=example, records_per_user_max=job.records_per_user_max)
    loss, run = LOSS_BY_NAME[job.loss], _run(job, made, options)
    run.check()
    quote = run.plan()
    inputs, targets = select((inputs, targets), slice(EXAMPLES_MAX))
    example = run.constants.inputs(inputs), targets
    trained = sum(parameter.numel() for parameter in made.model.parameters() if parameter.requires_grad)
    clipping = recommended_clipping(made.model, run.constants.loss(loss), example)
    return JobCheck(job, trained, count_records(made.test[1], "test"), clipping, quote)


def _run(job: Job, made: JobModel, options: Options) -> ModelRun:
    if isinstance(job.plan, TuningPlan):
        return tuning_run(job, options)
    return audited_run(made, options) if isinstance(job.plan, AuditedPlan) else run_of(made, options)


def _refuse_used_names(job: Job, service: Service) -> None:
    """Raises: FileExistsError, Malformed, where output or id are those of a run; Refused, Unreachable, OSError."""
    refuse_used_output(job)
    try:
        service.charge(job.id)
    except Refused as refused:
        if refused.exit_code == ExitCode.NOT_FOUND:
            return
        raise
    raise Malformed("train.id", f"{job.id} is the id of a charge that was made: name another id and output")


def recommended_clipping(model: nn.Module, loss: Loss, public: tuple[TensorTree, TensorTree]) -> str:
    """The median norm of public records' gradients, to two digits, as a decimal."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    device = next(model.parameters()).device
    norms = []
    for place in range(count_records(public[1], "test")):
        one, target = map_tensors(lambda part: part.to(device), select(public, slice(place, place + 1)))
        places, named = arguments(one)
        gradients = torch.autograd.grad(loss(model(*places, **named), target).sum(), trained)
        norms.append(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(part) for part in gradients])))
    median = float(torch.stack(norms).median()) if norms else 1.0
    if not math.isfinite(median):
        raise Malformed("model", "has no finite gradient for most public records: no clipping norm follows from them")
    return format_number(Fraction(f"{median:.{_DIGITS - 1}e}")) if median > 0 else "1"
