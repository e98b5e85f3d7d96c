"""Workers that fork: what PyTorch loads late, they load before."""

from __future__ import annotations

from fractions import Fraction

import torch
from torch.nn.functional import cross_entropy

from ledger.mechanisms.plan import Plan
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.job_models import models


def load_torch() -> None:
    """What torch loads at its first step, loaded once for all processes that this one forks."""
    model = models.make("digits-linear")
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    plan = Plan(Fraction(1, 2), Fraction(1), Fraction(1), 1, 1)
    engine = Engine(plan, model, cross_entropy, (torch.zeros(2, 64), torch.zeros(2, dtype=torch.int64)))
    engine.step(1, optimiser, CsprngRandomness.fresh())
