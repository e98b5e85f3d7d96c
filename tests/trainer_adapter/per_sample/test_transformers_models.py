"""Models as Transformers builds them, in full and by LoRA: vectorised, exact, and at most C; masks among the inputs."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ledger.mechanisms.plan import Plan
from tests.trainer_adapter.layer_models import CLASSES, Data, writes
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine

PLAN: Final = Plan(Fraction(1), Fraction(1), Fraction(1, 100), 10, 4)
WORDS, LENGTH, RECORDS = 40, 6, 4
PADDING: Final = 0


class Scores(nn.Module):
    """What a model of Transformers scores, given tokens and the mask of those that are no padding, or pictures."""

    def __init__(self, core: Any, *, masked: bool = False, pictures: bool = False) -> None:  # noqa: ANN401 - any model
        super().__init__()
        self.core, self.masked, self.pictures = core, masked, pictures

    def forward(self, x: Tensor) -> Tensor:
        """Shape (records, ..., classes)."""
        if self.pictures:
            scores: Tensor = self.core(pixel_values=x).logits
        elif self.masked:
            scores = self.core(input_ids=x, attention_mask=(x != PADDING).long()).logits
        else:
            scores = self.core(input_ids=x).logits
        return scores


def _gpt2() -> Any:  # noqa: ANN401 - a model
    from transformers import GPT2Config, GPT2LMHeadModel

    ends = {"bos_token_id": 1, "eos_token_id": 1}
    sizes = {"vocab_size": WORDS, "n_positions": LENGTH, "n_embd": 8, "n_layer": 1, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config.from_dict({**sizes, **ends}))


def _llama() -> Any:  # noqa: ANN401 - a model
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": WORDS, "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": LENGTH}
    return LlamaForCausalLM(LlamaConfig.from_dict({**sizes, **heads}))


def _bert() -> Any:  # noqa: ANN401 - a model
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}
    return BertForSequenceClassification(
        BertConfig.from_dict({"vocab_size": WORDS, "max_position_embeddings": LENGTH, **sizes})
    )


def _vit() -> Any:  # noqa: ANN401 - a model
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12}
    return ViTForImageClassification(ViTConfig.from_dict({"image_size": 8, "patch_size": 4, **sizes}))


def _lora(core: Any) -> Any:  # noqa: ANN401 - a model
    from peft import LoraConfig, get_peft_model

    return get_peft_model(core, LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True))


def _texts(*, next_word: bool) -> Data:
    public = torch.Generator().manual_seed(1)
    words = torch.randint(1, WORDS, (RECORDS, LENGTH), generator=public)
    for record in range(RECORDS):
        words[record, LENGTH - record :] = PADDING
    return words, words.roll(-1, dims=1) if next_word else torch.arange(RECORDS) % 2


def _pictures() -> Data:
    return torch.rand((RECORDS, 3, 8, 8), generator=torch.Generator().manual_seed(1)), torch.arange(RECORDS) % 2


def _of_words(scores: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(scores.flatten(0, -2), targets.flatten())


MODELS: Final[dict[str, tuple[Callable[[], nn.Module], Callable[[Tensor, Tensor], Tensor], Data]]] = {
    "GPT-2": (lambda: Scores(_gpt2()), _of_words, _texts(next_word=True)),
    "GPT-2 with a mask": (lambda: Scores(_gpt2(), masked=True), _of_words, _texts(next_word=True)),
    "GPT-2 by LoRA": (lambda: Scores(_lora(_gpt2()), masked=True), _of_words, _texts(next_word=True)),
    "Llama with a mask": (lambda: Scores(_llama(), masked=True), _of_words, _texts(next_word=True)),
    "BERT with a mask": (lambda: Scores(_bert(), masked=True), cross_entropy, _texts(next_word=False)),
    "ViT": (lambda: Scores(_vit(), pictures=True), cross_entropy, _pictures()),
}


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_transformers_trains_vectorised(name: str) -> None:
    """All records at once; a step whose sum is that of records one by one; a clipped record keeps 0.99 of C."""
    make, loss, data = MODELS[name]
    torch.manual_seed(3)
    model = make()
    engine = Engine(PLAN, model, loss, data, RECORDS, certify="always")
    assert len(engine.notices) == 1
    assert engine.margin < 0.01
    randomness = CsprngRandomness(bytes(32))
    keys = engine.keys(1, randomness)
    for batch in engine.microbatches(np.arange(RECORDS)):
        for place in range(RECORDS):
            kept = float(engine.clipped_sum([batch.only(place)], keys).norm()) / float(PLAN.clipping_norm)
            assert 0.99 < kept <= 1
    engine.step(2, torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.1), randomness)


@pytest.mark.parametrize("name", ["BERT", "GPT-2"])
def test_a_collator_s_batch_trains_the_model_itself(name: str) -> None:
    """No wrapper: records by name with their mask, and the sum that plain autograd gives record by record."""
    from transformers import default_data_collator

    def loss(outputs: Any, targets: Tensor) -> Tensor:  # noqa: ANN401 - Transformers' ModelOutput
        return _of_words(outputs.logits, targets)

    words, targets = _texts(next_word=name == "GPT-2")
    rows = [{"input_ids": one, "attention_mask": (one != PADDING).long()} for one in words]
    torch.manual_seed(3)
    model = _bert() if name == "BERT" else _gpt2()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    engine = Engine(PLAN, model, loss, (default_data_collator(rows), targets), RECORDS, certify="always")
    assert len(engine.notices) == 1
    expected = torch.zeros(engine.size, dtype=torch.float64)
    for place, row in enumerate(rows):
        outputs = model(**{key: value[None] for key, value in row.items()})
        one = loss(outputs, targets[place : place + 1])
        parts = torch.autograd.grad(one, list(model.parameters()), materialize_grads=True)
        gradient = torch.cat([part.flatten() for part in parts]).double()
        expected += gradient * min(1.0, engine.bound / float(gradient.norm()))
    found = engine.clipped_sum(engine.microbatches(np.arange(RECORDS)))
    assert float((found - expected).norm()) <= 5e-3 * float(expected.norm())


def test_checkpointed_blocks_and_outputs_in_a_structure_train_as_the_plain_model() -> None:
    """GPT-2 itself, whose outputs are a structure with a cache in it, each block checkpointed in both ways."""

    def of_logits(outputs: Any, targets: Tensor) -> Tensor:  # noqa: ANN401 - Transformers' ModelOutput
        return _of_words(outputs.logits, targets)

    def summed(
        core: nn.Module, model: nn.Module, loss: Callable[[Any, Tensor], Tensor]
    ) -> tuple[Tensor, tuple[str, ...]]:
        core.load_state_dict(state)
        engine = Engine(PLAN, model, loss, data, RECORDS)
        keys = engine.keys(1, CsprngRandomness(bytes(32)))
        return engine.clipped_sum(engine.microbatches(np.arange(RECORDS)), keys), engine.notices

    data, state = _texts(next_word=True), _gpt2().state_dict()
    scored = Scores(_gpt2())
    plain, notices = summed(scored.core, scored, _of_words)
    assert len(notices) == 1
    for reentrant in (False, True):
        core = _gpt2()
        core.activation_checkpointing_enable({"use_reentrant": reentrant})
        whole, notices = summed(core, core, of_logits)
        assert torch.equal(whole, plain)
        assert [line.partition(":")[0] for line in notices[1:]] == ["activation checkpointing is left out"]


def test_a_model_that_runs_in_turn_reports_what_it_costs() -> None:
    """One that writes into a shared tensor: a line that says so, with how many times as long a step takes."""
    data = torch.randn(6, 3, 5), torch.arange(6) % CLASSES
    engine = Engine(PLAN, writes(), cross_entropy, data, 4)
    assert engine.notices[1].startswith("the model cannot run on all 4 places of a microbatch at once, but in turn")
    assert "times as long as plain training" in engine.notices[1]
