"""One loop of Opacus under a charge, as its tests train it: what is made private, by which engine, and what it saw."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final

import pytest
import torch
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from ledger.mechanisms.plan import Plan
from tests.trainer_adapter.live_service import Place
from trainer_adapter.integrations import opacus
from trainer_adapter.integrations.opacus import Refusal, register
from trainer_adapter.run.charged_run import Run
from trainer_adapter.training.training_records import read_records

WARNINGS: Final = [
    # PrivacyEngine says that its generator is not made for secrets; without its missing package it has no other.
    pytest.mark.filterwarnings("ignore:Secure RNG turned off:UserWarning"),
    # Its hooks look at every layer, the first too, whose inputs are records and need no gradient.
    pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning"),
]
"""What a module of these tests has as its ``pytestmark``."""
PLAN: Final = Plan(Fraction(1, 2), Fraction(8), Fraction(1), 6, 350)
SPARSE: Final = Plan(Fraction(1, 700), Fraction(8), Fraction(1), 20, 1)
"""More than a third of its draws are empty."""
OVER: Final = "all 6 steps that were charged are taken"


@dataclass
class Bench:
    """What one test trains, and what it saw: the weights after each update, and the calls of its hooks."""

    run: Run
    model: nn.Linear
    records: TensorDataset
    module: Any = None
    optimiser: Any = None
    loader: Any = None
    weights: list[Tensor] = field(default_factory=list)
    hooked: list[str] = field(default_factory=list)

    def hook(self, name: str) -> Callable[[DPOptimizer], None]:
        """A hook that notes that it was called."""
        return lambda _: self.hooked.append(name)

    def private(self, by: str, **requested: Any) -> None:  # noqa: ANN401 - Opacus's own
        """Made private by the engine of Opacus or by ours."""
        stepped = torch.optim.SGD(self.model.parameters(), lr=0.3, momentum=0.9)
        if by == "ours":
            made = opacus.make_private(self.run, self.model, stepped, self.records)
        else:
            reported = {"noise_multiplier": 8.0, "max_grad_norm": 1.0, **requested}
            loader = DataLoader(self.records, batch_size=reported.pop("batch_size", 350), **reported.pop("loader", {}))
            engine = PrivacyEngine(accountant=register(self.run))
            made = engine.make_private(module=self.model, optimizer=stepped, data_loader=loader, **reported)
        self.module, self.optimiser, self.loader = made

    def backward(self, batch: list[Tensor]) -> None:
        """Gradients of one batch."""
        self.optimiser.zero_grad()
        cross_entropy(self.module(batch[0]), batch[1]).backward()

    def train(self, step: Callable[[], object] | None = None, loader: Iterable[Any] | None = None) -> None:
        """Update until something refuses it, or many times more than the plan has steps."""
        while len(self.weights) < 5 * PLAN.steps:
            for batch in loader or self.loader:
                self.backward(batch)
                (step or self.optimiser.step)()
                self.weights.append(self.model.weight.detach().clone())

    def refused(self, match: str = OVER, step: Callable[[], object] | None = None) -> None:
        """Train until then; what is left in the gradients is nothing."""
        with pytest.raises(Refusal, match=match):
            self.train(step)
        assert all(one.grad is None for one in self.model.parameters())


@contextmanager
def bench_of(place: Place, name: str, plan: Plan = PLAN, **requested: Any) -> Iterator[Bench]:  # noqa: ANN401 - members of the assignment
    """A run of this name, opened and begun, on the records of the place."""
    torch.manual_seed(5)
    with Run(replace(place.assignment(name, plan), **requested), place.service) as run:
        ((ref, data),) = run.open_data().items()
        run.begin()
        yield Bench(run, nn.Linear(64, 10), TensorDataset(*read_records(data, ref)))


def posted_steps(place: Place, name: str) -> int | None:
    """How many steps of a charge were posted; None before its post."""
    charge = place.charge(name)
    assert charge is not None
    return charge.steps_posted
