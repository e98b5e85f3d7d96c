"""A head and its loss in chunks of the vocabulary: loss, gradients and norms of whole scores, which never exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from msgspec import structs
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ledger.mechanisms.plan import Plan
from tests.documentation.fenced_blocks import ROOT, blocks
from tests.trainer_adapter.neighbours import contributions
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.layers.next_token_loss import next_token_loss

PLACE = "trainer_adapter/layers/test_next_token_loss.py"
WORDS, WIDTH, LENGTH, RECORDS = 41, 6, 5, 6
PLAN = Plan(Fraction(1, 2), Fraction(1), Fraction(1, 3), 10, 3)


class Language(nn.Module):
    """A small language model that gives each position's loss; ``at_once`` words at a time, or all by PyTorch's."""

    def __init__(self, at_once: int | None, *, tied: bool, words: int = WORDS) -> None:
        super().__init__()
        self.words, self.mix = nn.Embedding(words, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = None if tied else nn.Linear(WIDTH, words, bias=False)
        self._at_once = at_once

    def forward(self, tokens: Tensor) -> Tensor:
        """Shape (records, length - 1)."""
        weight = self.words.weight if self.head is None else self.head.weight
        hidden, targets = torch.tanh(self.mix(self.words(tokens[:, :-1]))), tokens[:, 1:]
        if self._at_once is not None:
            return next_token_loss(hidden, weight, targets, self._at_once)
        scores = functional.linear(hidden, weight)
        flat = functional.cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="none")
        return flat.reshape(targets.shape)


def _mean(losses: Tensor, _: Tensor) -> Tensor:
    return losses.mean()


def _data(words: int = WORDS, length: int = LENGTH) -> tuple[Tensor, Tensor]:
    public = torch.Generator().manual_seed(4)
    # Tokens that occur twice in a record, and as an input and as a target.
    tokens = torch.randint(0, words, (RECORDS, length + 1), generator=public)
    tokens[:, 3] = tokens[:, 1]
    return tokens, torch.zeros(RECORDS)


def _model(at_once: int | None, *, tied: bool, words: int = WORDS) -> nn.Module:
    torch.manual_seed(5)
    return Language(at_once, tied=tied, words=words)


@pytest.mark.parametrize("at_once", [1, 7, 41, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_losses_and_their_gradient_are_those_of_whole_scores(at_once: int, dtype: torch.dtype) -> None:
    """For great scores too, where exponentials overflow; a target that is left out has none."""
    public = torch.Generator().manual_seed(1)
    hidden = (40 * torch.randn(2, LENGTH, WIDTH, generator=public)).to(dtype).requires_grad_()
    weight, targets = torch.randn(WORDS, WIDTH, generator=public).to(dtype), torch.randint(WORDS, (2, LENGTH))
    targets[1, 2] = -100
    ours = next_token_loss(hidden, weight, targets, at_once)
    scores = hidden @ weight.T
    theirs = functional.cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="none").reshape(2, LENGTH)
    slopes = torch.linspace(-1, 2, 2 * LENGTH).reshape(2, LENGTH).to(dtype)
    mine, other = (torch.autograd.grad((losses * slopes).sum(), hidden)[0] for losses in (ours, theirs))
    exact = 1e-12 if dtype == torch.float64 else 2e-5
    assert torch.allclose(ours, theirs, rtol=exact, atol=exact * 40)
    assert torch.allclose(mine, other, rtol=exact, atol=exact * 10)
    assert float(ours[1, 2].detach()) == 0


def test_a_plain_backward_pass_reaches_the_head() -> None:
    """Outside the engine it is an ordinary loss, of head and vectors."""
    models = [_model(at_once, tied=True) for at_once in (7, None)]
    for model in models:
        model(_data()[0]).mean().backward()
    for mine, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        assert mine.grad is not None
        assert other.grad is not None
        assert torch.allclose(mine.grad, other.grad, atol=1e-7)


def test_a_target_that_is_no_word_is_an_error() -> None:
    """On a CPU, as of any cross-entropy: the engine then leaves its record out."""
    with pytest.raises((IndexError, RuntimeError)):
        next_token_loss(torch.zeros(1, 2, 3), torch.zeros(4, 3), torch.tensor([[0, 4]]))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_each_contribution_is_its_records_gradient(tied: bool, precision: str) -> None:  # noqa: FBT001
    """Not clipped: what plain autograd gives for the record alone, through whole scores."""
    plan, places = structs.replace(PLAN, clipping_norm=Fraction(10**6)), np.array([4, 0, 2])
    engine = Engine(plan, _model(7, tied=tied), _mean, _data(), 4, precision=precision)
    found, plain = contributions(engine, places), _model(None, tied=tied)
    for row, place in enumerate(places.tolist()):
        loss = plain(_data()[0][place : place + 1]).mean()
        known = torch.cat([one.flatten() for one in torch.autograd.grad(loss, list(plain.parameters()))])
        assert torch.allclose(found[row], known.to(torch.float64), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("tied", [False, True])
def test_the_clipped_sum_is_that_of_whole_scores(tied: bool) -> None:  # noqa: FBT001
    """By norms of chunks as by those of the whole, within the margin; and no record passes C."""
    engines = [Engine(PLAN, _model(at_once, tied=tied), _mean, _data(), 4) for at_once in (7, None)]
    assert "next_token" in engines[0].kernels.values()
    ours, theirs = (engine.clipped_sum(engine.microbatches(np.arange(RECORDS))) for engine in engines)
    assert torch.allclose(ours, theirs, rtol=1e-3, atol=1e-5)
    alone = contributions(engines[0], np.arange(RECORDS))
    for row in alone.tolist():
        square = sum(Fraction(one) ** 2 for one in row)
        assert (Fraction(99, 100) * PLAN.clipping_norm) ** 2 < square <= PLAN.clipping_norm**2


class _Largest(TorchDispatchMode):
    """How many values the largest tensor has that an operation gives."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch has no type for it
        self.values = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        del types
        result = func(*args, **(kwargs or {}))
        self.values = max([self.values, *(leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor))])
        return result


def test_no_tensor_of_a_step_holds_all_scores() -> None:
    """With the head in chunks the largest is a chunk or the sum of gradients; with whole scores it is the scores."""
    words, length = 2_000, 40
    largest = []
    for at_once in (100, None):
        engine = Engine(PLAN, _model(at_once, tied=True, words=words), _mean, _data(words, length), 4)
        with _Largest() as seen:
            engine.clipped_sum(engine.microbatches(np.arange(4)))
        largest.append(seen.values)
    scores = 4 * length * words
    assert largest[0] == max(engine.size, 4 * length * 100) < scores / 10
    assert largest[1] >= scores


def test_the_pages_model_trains() -> None:
    """The block of docs/training.md, under the engine."""
    (block,) = [one for one in blocks(ROOT / "docs" / "training.md") if one.run_by == f"tests/{PLACE}"]
    names: dict[str, Any] = {}
    exec(compile(block.text, "training.md", "exec"), names)  # noqa: S102 - the page's own block
    engine = Engine(PLAN, names["Language"](), names["loss"], _data(), 4)
    assert engine.clipped_sum(engine.microbatches(np.arange(4))).norm() > 0
    assert engine.kernels["words.weight"] == "next_token"
