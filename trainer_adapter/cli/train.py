"""One job of ``epsilon train``: its model on the best device, attached to its contract (``training.attach``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from client.dataset_files.stored_partition import PartitionData
from client.service.service import Service
from ledger.accounts.run_epsilon import ChargeEpsilon
from ledger.wire.canonical_json import Object
from ledger.wire.malformed import Malformed
from trainer_adapter.cli import models
from trainer_adapter.job.job_spec import Job
from trainer_adapter.layers.functional_call import in_modes
from trainer_adapter.session.model_release import Pause
from trainer_adapter.session.protocol import Say
from trainer_adapter.training.attach import ModelRun, Options, attach
from trainer_adapter.training.training_records import read_records

_IMAGES: Final = ((models.PIXELS,), (8, 8))
MICROBATCH: Final = 128
OnStep = Callable[[ModelRun, int], None]


@dataclass(frozen=True, slots=True)
class Report:
    """What may be known outside: nothing here was computed from governed data but through the mechanism.

    Attributes:
        accuracy: of the released model on the public test set, as a share.
        model: the released model's SHA-256, or empty if its release was refused.
        privacy: the ε of the whole run, one line a partition, and with all that its model descends from.
    """

    accuracy: float
    charge: str
    device: str
    model: str
    steps: int
    steps_charged: int
    privacy: ChargeEpsilon

    def to_json(self) -> Object:
        """For programs. ``epsilon`` is the greatest of ``run_epsilon``."""
        figures = self.privacy.to_json()
        own = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "privacy"}
        return {**own, **figures, "epsilon": self.privacy.epsilon.number}

    def in_words(self) -> str:
        """For people."""
        done = (
            f"{self.charge}: {self.steps} of {self.steps_charged} steps on {self.device}; "
            f"accuracy {self.accuracy:.1%} on the public test set"
        )
        return "\n  ".join((done, *self.privacy.in_words))


def train_job(  # noqa: PLR0913 - one name for each thing a command may choose
    job: Job,
    service: Service,
    say: Say,
    *,
    on_step: OnStep = lambda *_: None,
    pause: Pause | None = None,
    resume: bool = False,
) -> Report:
    """One job, from its charge to its model.

    Args:
        job: what to run.
        service: as the consumer calls it.
        say: receives one line for each stage.
        on_step: called after each step, with the run and the step's number.
        pause: waits some seconds: with it a run stays until its providers' notice of the model has run.
        resume: resume the job's run whose process died, if there is one.

    Raises:
        Refused: if the charge or the key is. Malformed, OSError, Unreachable.
    """
    # What can fail without the key fails before anything is charged.
    device = best_device()
    model = models.make(job.model, job.folder).to(device)
    test = tensors(job.test.read_bytes(), "test")
    if not len(test[0]):
        raise Malformed("test", "holds no record")
    target = job.accuracy_target
    optimiser = torch.optim.SGD(model.parameters(), lr=float(job.learning_rate), momentum=float(job.momentum))
    options = Options(
        service=service,
        say=say,
        read=_labelled,
        example=(test[0][:2], test[1][:2]),
        resume=resume,
        pause=pause,
        microbatch=MICROBATCH,
        records_per_user_max=job.records_per_user_max,
    )
    with attach(model, optimiser, nn.functional.cross_entropy, job, options) as run:
        for step in run:
            on_step(run, step)
            # A begun block counts in full anyway, so the public target is looked at where one ends.
            if target is not None and run.budget.at_block_boundary and _public_accuracy(run, test) >= target:
                break
    steps, right = run.taken, _public_accuracy(run, test)
    return Report(right, job.id, device_in_words(device), run.release(), steps, run.steps, run.privacy)


def _public_accuracy(run: ModelRun, test: tuple[Tensor, Tensor]) -> float:
    return accuracy(run.model, (run.constants.inputs(test[0]), test[1]))


def _labelled(data: PartitionData, what: str) -> tuple[Tensor, Tensor]:
    """A partition's records. Raises: Malformed, for what they all are."""
    inputs, targets = tensors(data, what)
    # A label of no class would stop a step and be named in the error. Its record gives no finite gradient
    # instead, so zero, and whether there is one is not reported.
    bad = (targets < 0) | (targets >= models.CLASSES)
    inputs[bad], targets[bad] = torch.nan, 0
    return inputs, targets


def tensors(data: PartitionData, what: str) -> tuple[Tensor, Tensor]:
    """Inputs (records, 64), from 0 to 1, and targets (records,). Raises: Malformed, for what they all are."""
    inputs, targets = read_records(data, what)
    if targets.is_floating_point():
        raise Malformed(what, "must hold numbers as inputs and integers as targets")
    if inputs.shape[1:] not in _IMAGES:
        raise Malformed(what, f"must have one target for each row of {models.PIXELS} inputs")
    return inputs.reshape(-1, models.PIXELS).to(torch.float32), targets


def accuracy(model: nn.Module, test: tuple[Tensor, Tensor]) -> float:
    """The share of a public set that the model gets right, in evaluation mode."""
    device = next(model.parameters()).device
    with torch.no_grad(), in_modes(dict.fromkeys(model.modules(), False)):
        right = model(test[0].to(device)).argmax(dim=1) == test[1].to(device)
    return float(right.double().mean())


def best_device() -> torch.device:
    """The first CUDA device if there is one, else the CPU."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


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
