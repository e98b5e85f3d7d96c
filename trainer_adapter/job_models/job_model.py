"""What a job trains and is measured on, made before anything is charged: model, public test set, loss, classes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor, nn

from client.dataset_files.stored_partition import PartitionData
from ledger.wire.malformed import Malformed
from trainer_adapter.job.category_inputs import model_width
from trainer_adapter.job.job_spec import LOSSES, Job
from trainer_adapter.job_models import models
from trainer_adapter.job_models.pretrained_folder import Scores, Task
from trainer_adapter.layers.functional_call import in_modes
from trainer_adapter.layers.tensor_trees import TensorTree, arguments, count_records, map_tensors, select
from trainer_adapter.training.named_losses import LEFT_OUT, measured
from trainer_adapter.training.preprocessing_constants import token_tensor
from trainer_adapter.training.public_set import classes_of, constants_from, read_public_set
from trainer_adapter.training.training_records import read_records

_DIGITS: Final = "digits-"
_IMAGES: Final = ((models.PIXELS,), (8, 8))
_VOCABULARY: Final = "vocabulary"
MEASURED: Final = 64
"""Public records that pass through the model at once."""


@dataclass(frozen=True, slots=True)
class JobModel:
    """A job, its constants among it, with its model on its device and its public test set.

    Attributes:
        test: inputs and targets, each a tensor or a tree of them.
        outputs: how many scores the model gives for a target.
        vocabulary: how many tokens a folder's model knows, where the job does not map those beyond it; else None.
    """

    job: Job
    model: nn.Module
    test: tuple[Any, Any]
    outputs: int
    vocabulary: int | None = None

    @classmethod
    def make(cls, job: Job, device: torch.device) -> JobModel:
        """Raises: Malformed, for what the job names wrongly; OSError."""
        _check_classes(job)
        folder = models.is_folder(job.model, job.folder)
        if job.lora is not None and not folder:
            raise Malformed("lora", f"is for a folder of public weights, which {job.model} is none: leave it out")
        if not folder and (":" in job.model or not models.is_sized(job.model)):
            # These need no test set to be made, so they are reported first.
            model = models.make(job.model, job.folder)
            test = fitted(job, *read_public_set(job.test, job.schema), "test")
        else:
            test = fitted(job, *read_public_set(job.test, job.schema), "test")
            model = models.make(job.model, job.folder, made_for=_task(job, test) if folder else _shape(job, test))
        if not count_records(test[0], "test"):
            raise Malformed("test", "holds no record")
        vocabulary = _vocabulary(job, model, test[0])
        outputs = _outputs(model, _first_as_seen(job, test[0]))
        if job.loss == LOSSES[0] and bool(_outside(test[1], outputs).any()):
            raise Malformed("test", f"holds a target that is none of the {outputs} classes that the model gives")
        known = replace(job, preprocessing=constants_from(job.preprocessing, test[0]))
        return cls(known, model.to(device), test, outputs, vocabulary)

    def records(self, data: PartitionData, what: str) -> tuple[Any, Any]:
        """A partition's records. Raises: Malformed, for what they all are."""
        inputs, targets = fitted(self.job, *read_records(data, what), what)
        if self.job.loss != LOSSES[0]:
            return inputs, targets
        # A label of no class, or a token that the model does not know, would stop a step and be named in the error. Its
        # record gives no finite gradient instead, so zero, and whether there is one is not reported.
        bad = (targets < 0) | (targets >= self.outputs)
        if isinstance(inputs, Tensor) and inputs.is_floating_point() and bad.dim() == 1:
            inputs[bad], targets[bad] = torch.nan, 0
        else:
            targets[bad] = LEFT_OUT
        tokens = token_tensor(inputs)
        if tokens is not None and self.vocabulary is not None:
            unknown = (tokens < 0) | (tokens >= self.vocabulary)
            tokens[unknown], targets[unknown.flatten(1).any(dim=1)] = 0, LEFT_OUT
        return inputs, targets

    def measure(self, inputs: TensorTree) -> float:
        """What is measured on the public test set, whose inputs are as the model sees them, in evaluation mode."""
        device, records = next(self.model.parameters()).device, count_records(inputs, "test")
        total, count = 0.0, 0
        with torch.no_grad(), in_modes(dict.fromkeys(self.model.modules(), False)):
            for start in range(0, records, MEASURED):
                part = (select(tree, slice(start, start + MEASURED)) for tree in (inputs, self.test[1]))
                seen, targets = (map_tensors(lambda tensor: tensor.to(device), tree) for tree in part)
                places, named = arguments(seen)
                amount, of = measured(self.job.loss, self.model(*places, **named), targets)
                total, count = total + amount, count + of
        return total / max(1, count)


def fitted(job: Job, inputs: TensorTree, targets: TensorTree, what: str) -> tuple[Any, Any]:
    """Records as the job's model and loss take them. Raises: Malformed, for what they all are."""
    if not isinstance(targets, Tensor):
        raise Malformed(what, f"has targets of several arrays, and the loss {job.loss} takes one")
    if job.model.startswith(_DIGITS):
        if not isinstance(inputs, Tensor) or inputs.shape[1:] not in _IMAGES:
            raise Malformed(what, f"must have one target for each row of {models.PIXELS} inputs")
        inputs = inputs.reshape(-1, models.PIXELS).to(torch.float32)
    if job.loss == LOSSES[0] and targets.is_floating_point():
        raise Malformed(what, "must hold numbers as inputs and integers as targets")
    return inputs, targets


def _check_classes(job: Job) -> None:
    """A class beyond those of the schema has no record, and a model with fewer knows not all. Raises: Malformed."""
    listed = classes_of(job.schema) if job.outputs is not None and job.loss == LOSSES[0] else None
    if listed is not None and listed != job.outputs:
        rule = f"is {job.outputs}, and the schema lists {listed} classes: write {listed}, or leave it out"
        raise Malformed("outputs", rule)


def _task(job: Job, test: tuple[Any, Tensor]) -> Task:
    """What a folder's model is for: a target for each token is the next one."""
    next_token = job.loss == LOSSES[0] and test[1].dim() > 1
    outputs = job.outputs or classes_of(job.schema)
    if next_token and job.outputs is not None:
        raise Malformed(
            "outputs", "is for one class of each record, and the targets are of each next token: leave it out"
        )
    if job.loss != LOSSES[0]:
        outputs = math.prod(test[1].shape[1:])
    return Task(outputs, next_token, job.lora)


def _shape(job: Job, test: tuple[Any, Tensor]) -> models.Shape:
    """What a model of any size takes and gives. Raises: Malformed."""
    inputs, targets = test
    if not isinstance(inputs, Tensor):
        raise Malformed("model", f"{job.model} takes one array of inputs, and the test set has several")
    outputs = job.outputs or classes_of(job.schema)
    if job.loss == LOSSES[0] and outputs is None:
        raise Malformed("outputs", "is missing: how many classes are there?")
    # A target that a schema lists as one of two classes is one number.
    if job.loss != LOSSES[0]:
        outputs = math.prod(targets.shape[1:])
    assert outputs is not None
    return models.Shape(model_width(math.prod(inputs.shape[1:]), job.preprocessing, job.plan), outputs)


def _first_as_seen(job: Job, inputs: TensorTree) -> TensorTree:
    """A record of the width that the model sees."""
    first: TensorTree = select(inputs, slice(1))
    if not isinstance(first, Tensor) or first.dim() != 2:
        return first
    width = model_width(first.shape[1], job.preprocessing, job.plan)
    return first if width == first.shape[1] else torch.zeros(len(first), width)


def _outside(targets: Tensor, outputs: int) -> Tensor:
    """Which targets are no class; in a text, one that is left out is none and may be."""
    outside = (targets < 0) | (targets >= outputs)
    return outside & (targets != LEFT_OUT) if targets.dim() > 1 else outside


def _vocabulary(job: Job, model: nn.Module, inputs: TensorTree) -> int | None:
    """How many tokens the model knows. Raises: Malformed, if the job or the test set has others."""
    known, tokens = model.vocabulary if isinstance(model, Scores) else None, token_tensor(inputs)
    if known is None or tokens is None:
        return None
    mapped = [constants for constants in job.preprocessing if constants.kind == _VOCABULARY]
    for constants in mapped:
        if any(size > known for _, (size, *_) in constants.values):
            raise Malformed("preprocessing", f"maps to more tokens than the {known} that the model {job.model} knows")
    if mapped:
        return None
    wrong = tokens[(tokens < 0) | (tokens >= known)]
    if len(wrong):
        rule = f"holds the token {int(wrong[0])}, and the model {job.model} knows 0 to {known - 1}: was it made with"
        raise Malformed("test", f"{rule} this model's tokenizer?")
    return known


def _outputs(model: nn.Module, inputs: TensorTree) -> int:
    """How many scores a model gives. Raises: Malformed, if it does not take such inputs."""
    places, named = arguments(map_tensors(torch.zeros_like, inputs))
    try:
        with torch.no_grad(), in_modes(dict.fromkeys(model.modules(), False)):
            outputs = model(*places, **named)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        if isinstance(error, Malformed):
            raise
        text = " ".join(str(error).split())[:200]
        raise Malformed("model", f"does not take a record of the test set: {text}") from None
    if not isinstance(outputs, Tensor) or outputs.dim() < 1:
        raise Malformed("model", "must give one tensor whose first dimension counts the records")
    return int(outputs.shape[-1])
