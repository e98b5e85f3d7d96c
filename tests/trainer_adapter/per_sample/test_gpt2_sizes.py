"""GPT-2 in its own configuration, scaled down and at full width: a clipped record keeps 0.99 of its true norm."""

from __future__ import annotations

import sys
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ledger.mechanisms.plan import Plan
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine

PLAN: Final = Plan(Fraction(1), Fraction(1), Fraction(1, 100), 10, 2)
_ENDS: Final = {"bos_token_id": 1, "eos_token_id": 1}
SCALED: Final = {"vocab_size": 8_000, "n_positions": 32, "n_embd": 24, "n_layer": 1, "n_head": 3, **_ENDS}
ONE_LAYER: Final = {"n_layer": 1}
"""All else as it was published: a vocabulary of 50,257, 1,024 positions, width 768, 12 heads."""
_PEFT = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")


def _model(sizes: dict[str, int], *, lora: bool) -> Any:  # noqa: ANN401 - a model of Transformers
    from peft import LoraConfig, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(3)
    core = GPT2LMHeadModel(GPT2Config.from_dict({**sizes, "use_cache": False}))
    return get_peft_model(core, LoraConfig(r=8, target_modules=["c_attn"], fan_in_fan_out=True)) if lora else core


def _of_next_words(outputs: Any, targets: Tensor) -> Tensor:  # noqa: ANN401 - Transformers' ModelOutput
    return cross_entropy(outputs.logits.flatten(0, -2), targets.flatten())


def _kept(sizes: dict[str, int], *, lora: bool) -> float:
    """The least share of the clipping norm that a record adds: a full text, and one that is half as long."""
    model = _model(sizes, lora=lora)
    words, length = model.config.vocab_size, model.config.n_positions
    tokens = torch.randint(0, words, (2, length), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(length)[None] < torch.tensor([[length], [length // 2]])).long()
    targets = torch.where(mask == 1, tokens.roll(-1, dims=1), -100)
    data = ({"input_ids": tokens, "attention_mask": mask}, targets)
    engine = Engine(PLAN, model, _of_next_words, data, 1)
    assert len(engine.notices) == 1, "it runs vectorised"
    assert engine.margin < 0.01
    assert engine.size == sum(one.numel() for one in model.parameters() if one.requires_grad)
    randomness = CsprngRandomness(bytes(32))
    keys, batches = engine.keys(1, randomness), engine.microbatches(np.arange(2))
    shares = [float(engine.clipped_sum([batch], keys).norm()) / float(PLAN.clipping_norm) for batch in batches]
    assert max(shares) <= 1
    engine.step(2, torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.1), randomness)
    return min(shares)


@_PEFT
@pytest.mark.parametrize("lora", [False, True])
def test_the_configuration_scaled_down(*, lora: bool) -> None:
    """One layer with its dropout, tied embedding and mask, in full and by LoRA."""
    assert _kept(SCALED, lora=lora) > 0.99


@pytest.mark.soak
@_PEFT
@pytest.mark.parametrize("lora", [False, True])
def test_one_layer_at_full_width(*, lora: bool) -> None:
    """In full and by LoRA; what was kept is written out."""
    kept = _kept(ONE_LAYER, lora=lora)
    sys.stdout.write(f"one layer of GPT-2 at full width, {'LoRA' if lora else 'in full'}: {kept:.5f} of C kept\n")
    assert kept > 0.99
