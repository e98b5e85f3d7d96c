"""What a job names: losses of one record, optimisers, and what is measured on the public test set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer_adapter.job.job_spec import SGD, Job
from trainer_adapter.training.run_options import Loss

LEFT_OUT: Final = -100
"""The class that PyTorch's cross entropy leaves out, as of padding: what has no other has no gradient."""


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of scores (records, ..., classes) and classes (records, ...), as of each next token."""
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def binary_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of scores and targets 0 or 1, one or several a record."""
    return functional.binary_cross_entropy_with_logits(outputs.reshape(targets.shape), targets.to(outputs.dtype))


def mean_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of numbers, one or several a record."""
    return functional.mse_loss(outputs.reshape(targets.shape), targets.to(outputs.dtype))


LOSS_BY_NAME: Final[dict[str, Loss]] = {
    "cross_entropy": cross_entropy,
    "binary_cross_entropy": binary_cross_entropy,
    "mean_squared_error": mean_squared_error,
}


_ELEMENTWISE: Final = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop)


def optimiser_of(job: Job, model: nn.Module) -> torch.optim.Optimizer:
    """The job's optimiser over what the model trains."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rate, decay = float(job.learning_rate), float(job.weight_decay)
    if job.optimiser == SGD:
        return torch.optim.SGD(trained, lr=rate, momentum=float(job.momentum or 0), weight_decay=decay)
    made: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "adam": torch.optim.Adam,
        "adamw": torch.optim.AdamW,
        "rmsprop": torch.optim.RMSprop,
    }
    return made[job.optimiser](trained, lr=rate, weight_decay=decay)


def elementwise(optimiser: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimiser, if it updates each number by that number's own gradients alone.

    Models that are stacked in one parameter would meet in the state of any other, as Adafactor's norm over all of it.

    Raises:
        ValueError: if it is not known to.
    """
    if type(optimiser) not in _ELEMENTWISE:
        names = ", ".join(kind.__name__ for kind in _ELEMENTWISE)
        raise ValueError(f"models side by side are trained by {names}, not by {type(optimiser).__name__}")
    return optimiser


def measured(loss: str, outputs: Tensor, targets: Tensor) -> tuple[float, int]:
    """How many targets outputs get right, or for numbers the sum of squared errors; and how many targets count."""
    if loss == "mean_squared_error":
        return float(mean_squared_error(outputs, targets)) * targets.numel(), targets.numel()
    if loss == "binary_cross_entropy":
        return float(((outputs.reshape(targets.shape) > 0) == (targets > 0)).sum()), targets.numel()
    counts = targets != LEFT_OUT
    return float(((outputs.argmax(dim=-1) == targets) & counts).sum()), int(counts.sum())
