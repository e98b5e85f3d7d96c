"""What a job trains and is measured on, made before anything is charged: model, public test set, loss, classes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor, nn

from client.dataset_files.stored_partition import PartitionData
from ledger.wire.malformed import Malformed
from trainer_adapter.cli import models
from trainer_adapter.job.job_spec import LOSSES, Job
from trainer_adapter.layers.functional_call import in_modes
from trainer_adapter.training.named_losses import measured
from trainer_adapter.training.public_set import classes_of, constants_from, read_public_set
from trainer_adapter.training.training_records import read_records

_DIGITS: Final = "digits-"
_IMAGES: Final = ((models.PIXELS,), (8, 8))
_IGNORED: Final = -100
"""The class that PyTorch's cross entropy leaves out: a record of it has no gradient."""


@dataclass(frozen=True, slots=True)
class JobModel:
    """A job, its constants among it, with its model on its device and its public test set.

    Attributes:
        outputs: how many scores the model gives for a target.
    """

    job: Job
    model: nn.Module
    test: tuple[Tensor, Tensor]
    outputs: int

    @classmethod
    def make(cls, job: Job, device: torch.device) -> JobModel:
        """Raises: Malformed, for what the job names wrongly; OSError."""
        if ":" in job.model or not models.is_sized(job.model, job.folder):
            # These need no test set to be made, so they are reported first.
            model = models.make(job.model, job.folder)
            test = fitted(job, *read_public_set(job.test, job.schema), "test")
        else:
            test = fitted(job, *read_public_set(job.test, job.schema), "test")
            model = models.make(job.model, job.folder, shape=_shape(job, test))
        if not len(test[0]):
            raise Malformed("test", "holds no record")
        outputs = _outputs(model, test[0][:1])
        if job.loss == LOSSES[0] and not bool(((test[1] >= 0) & (test[1] < outputs)).all()):
            raise Malformed("test", f"holds a target that is none of the {outputs} classes that the model gives")
        known = replace(job, preprocessing=constants_from(job.preprocessing, test[0]))
        return cls(known, model.to(device), test, outputs)

    def records(self, data: PartitionData, what: str) -> tuple[Tensor, Tensor]:
        """A partition's records. Raises: Malformed, for what they all are."""
        inputs, targets = fitted(self.job, *read_records(data, what), what)
        if self.job.loss != LOSSES[0]:
            return inputs, targets
        # A label of no class would stop a step and be named in the error. Its record gives no finite gradient
        # instead, so zero, and whether there is one is not reported.
        bad = (targets < 0) | (targets >= self.outputs)
        if inputs.is_floating_point() and bad.dim() == 1:
            inputs[bad], targets[bad] = torch.nan, 0
        else:
            targets[bad] = _IGNORED
        return inputs, targets

    def measure(self, inputs: Tensor) -> float:
        """What is measured on the public test set, whose inputs are as the model sees them, in evaluation mode."""
        device = next(self.model.parameters()).device
        with torch.no_grad(), in_modes(dict.fromkeys(self.model.modules(), False)):
            return measured(self.job.loss, self.model(inputs.to(device)), self.test[1].to(device))


def fitted(job: Job, inputs: Tensor, targets: Tensor, what: str) -> tuple[Tensor, Tensor]:
    """Records as the job's model and loss take them. Raises: Malformed, for what they all are."""
    if job.model.startswith(_DIGITS):
        if inputs.shape[1:] not in _IMAGES:
            raise Malformed(what, f"must have one target for each row of {models.PIXELS} inputs")
        inputs = inputs.reshape(-1, models.PIXELS).to(torch.float32)
    if job.loss == LOSSES[0] and targets.is_floating_point():
        raise Malformed(what, "must hold numbers as inputs and integers as targets")
    return inputs, targets


def _shape(job: Job, test: tuple[Tensor, Tensor]) -> models.Shape:
    """What a model of any size takes and gives. Raises: Malformed."""
    inputs, targets = test
    outputs = job.outputs or classes_of(job.schema)
    if job.loss == LOSSES[0] and outputs is None:
        raise Malformed("outputs", "is missing: how many classes are there?")
    # A target that a schema lists as one of two classes is one number.
    if job.loss != LOSSES[0]:
        outputs = math.prod(targets.shape[1:])
    assert outputs is not None
    return models.Shape(math.prod(inputs.shape[1:]), outputs)


def _outputs(model: nn.Module, inputs: Tensor) -> int:
    """How many scores a model gives. Raises: Malformed, if it does not take such inputs."""
    try:
        with torch.no_grad(), in_modes(dict.fromkeys(model.modules(), False)):
            outputs = model(torch.zeros_like(inputs))
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        text = " ".join(str(error).split())[:200]
        raise Malformed("model", f"does not take a record of the test set: {text}") from None
    if not isinstance(outputs, Tensor) or outputs.dim() < 1:
        raise Malformed("model", "must give one tensor whose first dimension counts the records")
    return int(outputs.shape[-1])
