"""Audits without a service: models, an engine whose noise is a part of the plan's, and what the guesses prove."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

import torch
from torch import Tensor, nn

from ledger.accounts.audit_bound import Tally
from ledger.mechanisms.plan import Plan
from tests.trainer_adapter.layer_models import Adapter
from trainer_adapter.audit.audited_run import CanaryScores
from trainer_adapter.audit.canaries import CanaryModel, RecordsAndCanaries, canary_loss
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.training.named_losses import cross_entropy
from trainer_adapter.training.one_run_audit import flip, tally

MakeModel = Callable[[], tuple[nn.Module, Any]]
"""A model, and inputs of eight records."""
RECORDS: Final = 8
LABELS: Final = torch.arange(RECORDS) % 3


def multilayer() -> tuple[nn.Module, Any]:
    """Two layers over four numbers."""
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), torch.linspace(-1, 1, 4 * RECORDS).reshape(-1, 4)


def convolutional() -> tuple[nn.Module, Any]:
    """Two convolutions over images of 8 by 8."""
    layers = (nn.Conv2d(1, 4, 3, stride=2), nn.Tanh(), nn.Conv2d(4, 4, 2), nn.Tanh(), nn.Flatten(), nn.Linear(16, 3))
    return nn.Sequential(*layers), torch.linspace(-1, 1, 64 * RECORDS).reshape(-1, 1, 8, 8)


class Adapted(nn.Module):
    """A frozen layer of a transformer with trained corrections of low rank; its tokens come by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 8).requires_grad_(requires_grad=False)
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        self.layer.requires_grad_(requires_grad=False)
        self.before, self.head = Adapter(8, 8), Adapter(8, 3)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Scores of shape (records, 3)."""
        scores: Tensor = self.head(self.layer(self.before(self.table(input_ids))).mean(dim=1))
        return scores


def adapted() -> tuple[nn.Module, Any]:
    """A transformer with LoRA."""
    return Adapted(), {"input_ids": torch.arange(6 * RECORDS).reshape(-1, 6) % 20}


def audited(  # noqa: PLR0913, PLR0917 - what an audit is made of
    make: MakeModel,
    plan: Plan,
    canaries: int,
    guesses: int,
    noise_part: float = 1.0,
    secret: Callable[[], CsprngRandomness] = CsprngRandomness.fresh,
) -> Tally:
    """One run with this part of the plan's noise, and its guesses. ``secret`` is called for coins, then for noise."""
    inner, inputs = make()
    model = CanaryModel(inner, canaries)
    coins = flip(secret().stream("sampler", 1), canaries)
    records = RecordsAndCanaries((inputs, LABELS), canaries)
    present = torch.cat((torch.ones(RECORDS, dtype=torch.bool), torch.from_numpy(coins)))
    loss = canary_loss(cross_entropy, float(plan.clipping_norm))
    engine = Engine(plan, model, loss, records, 256, present=present)
    engine.noise_std = engine.noise_std * noise_part
    optimiser = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.1, momentum=0.9)
    scores = CanaryScores(plan, model)
    optimiser.register_step_pre_hook(scores)
    randomness = secret()
    for step in range(1, plan.steps + 1):
        engine.step(step, optimiser, randomness)
    only_in = plan.sampling_probability < Fraction(1, 2)
    return tally(scores.totals.numpy(), coins, guesses, only_in=only_in)
