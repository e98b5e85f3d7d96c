"""GPT-2 and BERT as Transformers builds them, with the dropout they come with, trained by the engine."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ledger.mechanisms.plan import Plan
from tests.trainer_adapter.layer_models import Data
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine

PLAN: Final = Plan(Fraction(1, 2), Fraction(1), Fraction(1, 3), 10, 4)
WORDS, LENGTH, RECORDS = 50, 6, 6


class NextWord(nn.Module):
    """Scores of each next word. The causal mask is given: without one the model asks its inputs whether to make it."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        ends = {"bos_token_id": 0, "eos_token_id": 0}
        config: Any = GPT2Config.from_dict(
            {"vocab_size": WORDS, "n_positions": LENGTH, "n_embd": 16, "n_layer": 1, "n_head": 2, **ends}
        )
        self.inner: Any = GPT2LMHeadModel(config)

    def forward(self, words: Tensor) -> Tensor:
        """Shape (records, length, words)."""
        causal = torch.ones((1, 1, LENGTH, LENGTH), dtype=torch.bool, device=words.device).tril()
        scores: Tensor = self.inner(input_ids=words, attention_mask=causal, use_cache=False).logits
        return scores


class Sentiment(nn.Module):
    """Two scores for a text."""

    def __init__(self) -> None:
        super().__init__()
        from transformers import BertConfig, BertForSequenceClassification

        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
        config: Any = BertConfig.from_dict({"vocab_size": WORDS, "max_position_embeddings": LENGTH, **sizes})
        self.inner: Any = BertForSequenceClassification(config)

    def forward(self, words: Tensor) -> Tensor:
        """Shape (records, 2)."""
        scores: Tensor = self.inner(input_ids=words).logits
        return scores


def _data(*, next_word: bool) -> Data:
    words = torch.randint(WORDS, (RECORDS, LENGTH), generator=torch.Generator().manual_seed(1))
    return words, words.roll(-1, dims=1) if next_word else torch.arange(RECORDS) % 2


def _of_words(scores: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(scores.flatten(0, -2), targets.flatten())


@pytest.mark.parametrize(
    ("make", "loss", "masks"),
    # The embeddings' one; attention's weights and what it gives; what the feed-forward part gives; BERT's head.
    [(NextWord, _of_words, 4), (Sentiment, cross_entropy, 5)],
)
def test_models_that_come_with_dropout_train(
    make: Callable[[], nn.Module], loss: Callable[[Tensor, Tensor], Tensor], masks: int
) -> None:
    """Every mask is drawn by record, every parameter has a rule, and records one by one give the same at each step."""
    torch.manual_seed(3)
    model = make()
    rates = {module.p for module in model.modules() if isinstance(module, nn.Dropout)}
    assert rates == {0.1}
    engine = Engine(PLAN, model, loss, _data(next_word=make is NextWord), 4, certify="always")
    assert engine._sum.drops == masks  # noqa: SLF001 - how many were traced
    optimiser, randomness = torch.optim.AdamW(model.parameters(), lr=0.01), CsprngRandomness(bytes(32))
    before = [value.clone() for value in model.parameters()]
    for step in (1, 2):
        engine.step(step, optimiser, randomness)
    assert all(torch.isfinite(value).all() for value in model.parameters())
    assert not any(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
