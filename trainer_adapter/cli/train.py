"""One job of ``epsilon train``: its model on the best device, attached to its contract (``training.attach``)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from client.service.service import Service
from ledger.accounts.run_epsilon import ChargeEpsilon
from ledger.mechanisms.statistics_plans import StagedPlan
from ledger.wire.canonical_json import Object
from trainer_adapter.devices.attach_ranks import attach_ranks
from trainer_adapter.devices.leading_run import LeadingRun
from trainer_adapter.devices.rank_group import RankGroup
from trainer_adapter.job.job_spec import Job
from trainer_adapter.job_models.job_model import JobModel
from trainer_adapter.layers.functional_call import in_modes
from trainer_adapter.layers.tensor_trees import select
from trainer_adapter.session.model_release import Pause
from trainer_adapter.session.protocol import Say
from trainer_adapter.statistics.noisy_answers import shown
from trainer_adapter.statistics.staged_run import StagedRun
from trainer_adapter.training.attach import attach
from trainer_adapter.training.model_run import ModelRun
from trainer_adapter.training.named_losses import LOSS_BY_NAME, optimiser_of
from trainer_adapter.training.run_options import Options

_IN_WORDS: Final = ("accuracy", "answers", "measure", "privacy")
"""Members of a report that are reported in words of their own."""
MICROBATCH: Final = 128
OnStep = Callable[[ModelRun, int], None]


@dataclass(frozen=True, slots=True)
class Report:
    """What may be known outside: nothing here was computed from governed data but through the mechanism.

    Attributes:
        accuracy: of the released model on the public test set, as a share.
        model: the released model's SHA-256, or empty if its release was refused.
        privacy: the ε of the whole run, one line a partition, and with all that its model descends from.
        measure: what ``accuracy`` is: of a regression the mean squared error.
        answers: of a run of stages, by name in words; empty unless its model was released. None of others.
    """

    accuracy: float
    charge: str
    device: str
    model: str
    steps: int
    steps_charged: int
    privacy: ChargeEpsilon
    measure: str = "accuracy"
    answers: dict[str, str] | None = None

    def to_json(self) -> Object:
        """For programs. ``epsilon`` is the greatest of ``run_epsilon``, and ``partition`` is where."""
        figures = self.privacy.to_json()
        own = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _IN_WORDS}
        answers: Object = {} if self.answers is None else {"answers": {**self.answers}}
        whole = self.privacy.epsilon
        lone: Object = {"epsilon": whole.number, "partition": whole.partition}
        return {**own, **answers, self.measure: self.accuracy, **figures, **lone}

    def in_words(self) -> str:
        """For people."""
        done = (
            f"{self.charge}: {self.steps} of {self.steps_charged} steps on {self.device}; "
            f"{measure_in_words(self.measure, self.accuracy)} on the public test set"
        )
        answers = [f"{name} = {value}" for name, value in (self.answers or {}).items()]
        return "\n  ".join((done, *self.privacy.in_words, *answers))


def measure_in_words(measure: str, value: float) -> str:
    """What was measured on a public test set."""
    return f"accuracy {value:.1%}" if measure == "accuracy" else f"mean squared error {value:.4g}"


def train_job(  # noqa: PLR0913 - one name for each thing a command may choose
    job: Job,
    service: Service,
    say: Say,
    *,
    on_step: OnStep = lambda *_: None,
    pause: Pause | None = None,
    resume: bool = False,
    ranks: RankGroup | None = None,
) -> Report:
    """One job, from its charge to its model.

    Args:
        job: what to run.
        service: as the consumer calls it.
        say: receives one line for each stage.
        on_step: called after each step, with the run and the step's number.
        pause: waits some seconds: with it a run stays until its providers' notice of the model has run.
        resume: resume the job's run whose process died, if there is one.
        ranks: those that train together, of which this process is the first.

    Raises:
        Refused: if the charge or the key is. Malformed, OSError, Unreachable.
    """
    # What can fail without the key fails before anything is charged.
    device = best_device()
    made = JobModel.make(job, device)
    target = job.accuracy_target
    options = replace(options_of(made), service=service, say=say, resume=resume, pause=pause)
    with run_of(made, options, ranks) as run:
        for step in run:
            on_step(run, step)
            # A begun block counts in full anyway, so the public target is looked at where one ends.
            if target is not None and run.budget.at_block_boundary and _public_accuracy(run, made) >= target:
                break
    steps, right = run.taken, _public_accuracy(run, made)
    named, released, answers = device_in_words(device), run.release(), None
    if isinstance(run, StagedRun):
        answers = {name: shown(value) for name, value in run.answers.items()} if released else {}
    return Report(right, job.id, named, released, steps, run.steps, run.privacy, job.measure, answers)


def follow_job(job: Job, ranks: RankGroup) -> None:
    """Train beside the first rank of a job; the ledger hears nothing of this process.

    Raises:
        Malformed: for what the job names wrongly, and if the run breaks on any rank. OSError.
    """
    made = JobModel.make(job, best_device())
    optimiser = optimiser_of(made.job, made.model)
    with attach_ranks(made.model, optimiser, LOSS_BY_NAME[job.loss], made.job, options_of(made), ranks) as run:
        for _ in run:
            pass


def options_of(made: JobModel) -> Options:
    """What every process of a job's run is attached with. Raises: Malformed."""
    return Options(
        read=made.records,
        example=select(made.test, slice(2)),
        microbatch=MICROBATCH,
        records_per_user_max=made.job.records_per_user_max,
    )


def run_of(made: JobModel, options: Options, ranks: RankGroup | None = None) -> ModelRun:
    """The run of a job, of stages where its plan has them, or of the first of several ranks. Raises: Malformed."""
    job, optimiser = made.job, optimiser_of(made.job, made.model)
    if ranks is not None:
        return LeadingRun(made.model, optimiser, LOSS_BY_NAME[job.loss], job, options, ranks)
    if isinstance(job.plan, StagedPlan):
        return StagedRun(made.model, optimiser, LOSS_BY_NAME[job.loss], job, options, job.loss)
    return attach(made.model, optimiser, LOSS_BY_NAME[job.loss], job, options)


def _public_accuracy(run: ModelRun, made: JobModel) -> float:
    return made.measure(run.constants.inputs(made.test[0]))


def accuracy(model: nn.Module, test: tuple[Tensor, Tensor]) -> float:
    """The share of a public set that the model gets right, in evaluation mode."""
    device = next(model.parameters()).device
    with torch.no_grad(), in_modes(dict.fromkeys(model.modules(), False)):
        right = model(test[0].to(device)).argmax(dim=1) == test[1].to(device)
    return float(right.double().mean())


def best_device() -> torch.device:
    """The CUDA device of this rank, or the first, if there is one; else the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def device_in_words(device: torch.device) -> str:
    """The device as people name it, as ``NVIDIA H200 (GPU)`` or ``Intel Xeon, 2 threads (CPU)``."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)} (GPU)"
    threads = torch.get_num_threads()
    return f"{_processor()}, {threads} {'thread' if threads == 1 else 'threads'} (CPU)"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "processor"
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "processor")
