"""What the trainer's tests share: a small plan, fixed randomness, a small model and records."""

from __future__ import annotations

import os
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from ledger.mechanisms.plan import Plan
from trainer_adapter.dpsgd.csprng import CsprngRandomness

if TYPE_CHECKING:
    from collections.abc import Callable

torch.set_num_threads(1)
# Compiled graphs are small here: processes that compile beside this one would load torch for nothing.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")


@pytest.fixture
def plan() -> Plan:
    """Twelve steps at probability 1/4, clipping norm 1/2, noise multiplier 2."""
    return Plan(Fraction(1, 4), Fraction(2), Fraction(1, 2), 12, 10)


@pytest.fixture
def randomness() -> CsprngRandomness:
    """Fixed randomness, so that a test fails the same way twice."""
    return CsprngRandomness(bytes(range(32)))


@pytest.fixture
def make_model() -> Callable[[], nn.Module]:
    """The same two-layer network each time: 5 inputs, 3 classes, a convolution and a norm in it."""

    def make() -> nn.Module:
        torch.manual_seed(3)
        return nn.Sequential(
            nn.Unflatten(1, (1, 5)),
            nn.Conv1d(1, 4, 3),
            nn.GroupNorm(2, 4),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(12, 3),
        )

    return make


@pytest.fixture
def data() -> tuple[torch.Tensor, torch.Tensor]:
    """Forty made-up records with large gradients in some of them."""
    generator = torch.Generator().manual_seed(4)
    inputs = torch.randn((40, 5), generator=generator) * torch.logspace(-2, 2, 40)[:, None]
    return inputs, torch.arange(40) % 3
