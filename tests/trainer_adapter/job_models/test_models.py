"""The models a run can name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn.functional import cross_entropy

from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.job_models.models import make

if TYPE_CHECKING:
    from ledger.mechanisms.plan import Plan


@pytest.mark.parametrize("name", ["digits-linear", "digits-mlp"])
def test_a_named_model_is_public_and_fits_the_engine(plan: Plan, name: str) -> None:
    """It starts the same whatever torch's seed, leaves that generator alone, and the engine takes it."""
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = make(name)
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(2)
    second = make(name)
    for ours, theirs in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert first(torch.rand(3, 8, 8)).shape == (3, 10)
    data = (torch.rand(5, 64), torch.arange(5))
    assert Engine(plan, first, cross_entropy, data).size == sum(value.numel() for value in first.parameters())


def test_an_unknown_model_is_refused() -> None:
    """The names that are known are told."""
    with pytest.raises(Malformed, match="must be one of digits-linear, digits-mlp"):
        make("digits-gpt")


def test_boosted_trees_are_refused_by_name() -> None:
    """With what a private engine of them would need."""
    for name in ("xgboost", "gradient-boosted-trees"):
        with pytest.raises(Malformed, match="leaf sums with a proven sensitivity"):
            make(name)
