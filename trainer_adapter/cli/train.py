"""The clean room of ``epsilon train``: one job, from its charge to its model.

The job's model, optimiser and loss are attached to its contract, as anybody's are
(:mod:`trainer_adapter.training.attach`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from client.service.service import Service
from ledger.wire.malformed import Malformed
from trainer_adapter.cli import models
from trainer_adapter.cli.device import choose, in_words
from trainer_adapter.cli.job import Job
from trainer_adapter.layers.functional_call import in_modes
from trainer_adapter.run.charged_run import Remaining
from trainer_adapter.session.model_release import Pause
from trainer_adapter.session.protocol import Say
from trainer_adapter.training.attach import Options, Run, attach
from trainer_adapter.training.record_archive import arrays

_IMAGES: Final = ((models.PIXELS,), (8, 8))
PHYSICAL_BATCH: Final = 128
OnStep = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Report:
    """What may be known outside: nothing here was computed from governed data but through the mechanism.

    Attributes:
        accuracy: of the released model on the public test set, as a share.
        model: the released model's SHA-256, or empty if its release was refused.
    """

    charge: str
    steps: int
    steps_charged: int
    accuracy: float
    device: str
    model: str

    def to_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "accuracy": self.accuracy,
            "charge": self.charge,
            "device": self.device,
            "model": self.model,
            "steps": self.steps,
            "steps_charged": self.steps_charged,
        }

    def in_words(self) -> str:
        """For people."""
        return (
            f"{self.charge}: {self.steps} of {self.steps_charged} steps on {self.device}; "
            f"accuracy {self.accuracy:.1%} on the public test set"
        )


class CleanRoom:
    """The clean room of one job."""

    def __init__(
        self, job: Job, service: Service, say: Say, pause: Pause | None = None, *, resume: bool = False
    ) -> None:
        """``say`` is told each stage in one line.

        Args:
            job: what to run.
            service: as the consumer calls it.
            pause: waits some seconds: with it a run stays until its providers have had their notice of the model.
            resume: go on with the job's run whose process died, if there is one.
        """
        self._job, self._service, self._say = job, service, say
        self._pause, self._resume = pause, resume
        self._run: Run | None = None

    def run(self, on_step: OnStep) -> Report:
        """The whole run. Raises: Refused, if the charge or the key is; Malformed; OSError; Unreachable."""
        job = self._job
        # What can fail without the key fails before anything is charged.
        device = choose()
        model = models.make(job.model, job.folder).to(device)
        test = tensors(job.test.read_bytes(), "test")
        if not len(test[0]):
            raise Malformed("test", "holds no record")
        optimiser = torch.optim.SGD(model.parameters(), lr=float(job.learning_rate), momentum=float(job.momentum))
        options = Options(
            service=self._service,
            say=self._say,
            read=_labelled,
            example=(test[0][:2], test[1][:2]),
            resume=self._resume,
            pause=self._pause,
            physical_batch=PHYSICAL_BATCH,
            records_per_user_max=job.records_per_user_max,
        )
        with attach(model, optimiser, nn.functional.cross_entropy, job, options) as run:
            self._run = run
            for step in run:
                on_step(step, job.plan.steps)
                if self._reached(run, test):
                    break
        steps, right = run.taken, accuracy(model, (run.prepared.inputs(test[0]), test[1]))
        return Report(job.id, steps, job.plan.steps, right, in_words(device), run.release())

    def remaining(self) -> Remaining:
        """What is left of the run, and its loss so far; once it takes steps. Raises: Malformed, before."""
        if self._run is None:
            raise Malformed("run", "has not begun")
        return self._run.remaining()

    def _reached(self, run: Run, test: tuple[Tensor, Tensor]) -> bool:
        """Whether the public target is met, asked at the end of each block: a begun block counts in full anyway."""
        target = self._job.accuracy_target
        if target is None or not run.charged.steps.between_blocks:
            return False
        return accuracy(run.model, (run.prepared.inputs(test[0]), test[1])) >= target


def _labelled(data: bytes, what: str) -> tuple[Tensor, Tensor]:
    """A partition's records. Raises: Malformed, for what they all are."""
    inputs, targets = tensors(data, what)
    # A label of no class would stop a step and be named in the fault. Its record gives no finite gradient
    # instead, so zero, and whether there is one is not told.
    bad = (targets < 0) | (targets >= models.CLASSES)
    inputs[bad], targets[bad] = torch.nan, 0
    return inputs, targets


def tensors(data: bytes, what: str) -> tuple[Tensor, Tensor]:
    """Inputs (records, 64), from 0 to 1, and targets (records,). Raises: Malformed, for what they all are."""
    inputs, targets = arrays(data, what)
    if inputs.shape[1:] not in _IMAGES:
        raise Malformed(what, f"must have one target for each row of {models.PIXELS} inputs")
    return inputs.reshape(-1, models.PIXELS).to(torch.float32), targets


def accuracy(model: nn.Module, test: tuple[Tensor, Tensor]) -> float:
    """The share of a public set that the model gets right, in evaluation mode."""
    device = next(model.parameters()).device
    with torch.no_grad(), in_modes(dict.fromkeys(model.modules(), False)):
        right = model(test[0].to(device)).argmax(dim=1) == test[1].to(device)
    return float(right.double().mean())
