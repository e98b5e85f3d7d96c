"""A student learns from beliefs about public inputs, and its own beliefs replace them: self-training on random views.

Spread labels are wrong in places. A network that sees each input in another view at each look does not learn these
errors by heart in a few passes, and contradicts many of them: what it believes of all inputs, as the mean over several
views, teaches the next network (Xie et al. 2020, "Self-training with noisy student"; Sohn et al. 2020, "FixMatch").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softmax

from ledger.wire.malformed import Malformed

View = Callable[[Tensor, torch.Generator], Tensor]
"""Another view of a batch of inputs that shows the same: the same shape, from a source of chance."""


@dataclass(frozen=True, slots=True)
class Lessons:
    """How a student learns.

    Attributes:
        steps: of each network in turn; the last one is the student. A network that learned too little teaches the next
            one too little, however many inputs there are.
        batch_size: inputs a step. learning_rate: Adam's greatest; it rises and falls once.
        looks: views over which a network's belief is the mean.
        seed: of order and views.
    """

    steps: tuple[int, ...] = (600, 900, 1_800)
    batch_size: int = 64
    learning_rate: float = 2e-3
    looks: int = 4
    seed: int = 0


def learn_student(
    make: Callable[[], nn.Module], inputs: Tensor, beliefs: Tensor, view: View, lessons: Lessons | None = None
) -> nn.Module:
    """The student, in evaluation mode.

    Args:
        make: a network with first weights, one for each of the turns.
        inputs: all public inputs, those that were asked about among them, shape (records, ...).
        beliefs: about the class of each, shape (records, classes), as :func:`spread_labels` gives them.

    Raises:
        Malformed: for beliefs that are not one row an input.
    """
    how = lessons or Lessons()
    if beliefs.dim() != 2 or len(beliefs) != len(inputs) or not len(inputs) or not how.steps:
        raise Malformed("beliefs", "must be one row of numbers for each public input")
    source = torch.Generator().manual_seed(how.seed)
    for steps in how.steps:
        student = make()
        _learn(student, inputs, beliefs.to(torch.float32), view, how, steps, source)
        beliefs = _believed(student, inputs, view, how, source)
    return student


def _learn(  # noqa: PLR0913, PLR0917 - what training depends on
    model: nn.Module, inputs: Tensor, beliefs: Tensor, view: View, how: Lessons, steps: int, source: torch.Generator
) -> None:
    """Each input counts by how far the class believed most is ahead of the next."""
    most = beliefs.topk(min(2, beliefs.shape[1]), dim=1)
    targets, ahead = most.indices[:, 0], most.values[:, 0] - most.values[:, -1]
    ahead = ahead / ahead.mean().clamp(min=torch.finfo(ahead.dtype).tiny)
    optimiser = torch.optim.Adam(model.parameters(), how.learning_rate)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, how.learning_rate, total_steps=steps + 1)
    model.train()
    for rows in islice(_batches(len(inputs), how.batch_size, source), steps):
        optimiser.zero_grad()
        losses = cross_entropy(model(view(inputs[rows], source)), targets[rows], reduction="none")
        (losses * ahead[rows]).mean().backward()
        optimiser.step()
        rate.step()
    model.eval()


def _batches(count: int, size: int, source: torch.Generator) -> Iterator[Tensor]:
    """Rows of one batch after another; all inputs are seen before one is seen again."""
    while True:
        yield from torch.randperm(count, generator=source).split(size)


def _believed(model: nn.Module, inputs: Tensor, view: View, how: Lessons, source: torch.Generator) -> Tensor:
    """The mean of what a network believes of several views of each input, shape (records, classes)."""
    with torch.no_grad():
        parts = [
            torch.stack([softmax(model(view(part, source)), dim=1) for _ in range(how.looks)]).mean(dim=0)
            for part in inputs.split(1_000)
        ]
    return torch.cat(parts)
