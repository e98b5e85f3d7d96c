"""Updates that the tail of a step makes itself: PyTorch's own optimisers, bit for bit on one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop
from torch.optim.lr_scheduler import StepLR

from ledger.mechanisms.plan import Plan
from trainer_adapter.dpsgd.csprng import PAIRS_AT_ONCE, CsprngRandomness, Stream
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.dpsgd.known_updates import begin_updates, known_kind
from trainer_adapter.dpsgd.noisy_mean import noisy_mean, noisy_update

KEY = bytes(range(32))
MakeModel = Callable[[], nn.Module]
Make = Callable[[list[nn.Parameter]], Optimizer]
Data = tuple[Tensor, Tensor]
SIZES: list[tuple[int, ...]] = [(3,), (), (170, 301), (0,), (1,), (PAIRS_AT_ONCE + 5,), (7, 1000)]
MAKERS: list[Make] = [
    lambda weights: SGD(weights, lr=0.3),
    lambda weights: SGD(weights, lr=0.3, momentum=0.9, weight_decay=0.1, dampening=0.2),
    lambda weights: SGD(weights, lr=0.3, momentum=0.9, nesterov=True, maximize=True),
    lambda weights: SGD([{"params": weights[:2], "lr": 0.1}, {"params": weights[2:], "momentum": 0.5}], lr=1.0),
    lambda weights: AdamW(weights, lr=0.01, weight_decay=0.1),
    lambda weights: Adam(weights, lr=0.01, betas=(0.3, 0.9), weight_decay=0.1, maximize=True),
]


@pytest.fixture
def two_threads() -> Iterator[None]:
    """PyTorch's threads are how many share the pieces."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def _after_three_steps(make: Make) -> list[tuple[Tensor, Tensor]]:
    """Weights and moments, ours beside those of PyTorch's own step."""
    public = torch.Generator().manual_seed(3)
    first = [torch.randn(size, generator=public) for size in SIZES]
    ours, theirs = ([nn.Parameter(one.clone()) for one in first] for _ in range(2))
    mine, other = make(ours), make(theirs)
    count = sum(one.numel() for one in first)
    for step in range(1, 4):
        total, nonce = torch.randn(count, generator=public), step.to_bytes(12, "little")
        mean, start = noisy_mean(total.clone(), Stream(KEY, nonce), 0.7, 9), 0
        for one in theirs:
            one.grad = mean[start : start + one.numel()].view_as(one)
            start += one.numel()
        other.step()
        kind = known_kind(mine, ours)
        assert kind is not None
        noisy_update(total, Stream(KEY, nonce), 0.7, 9, begin_updates(mine, ours), kind)
    kept = [
        (mine.state[one][name], other.state[another][name])
        for one, another in zip(ours, theirs, strict=True)
        for name in other.state[another]
        if other.state[another][name] is not None
    ]
    return [*zip(ours, theirs, strict=True), *kept]


@pytest.mark.parametrize("make", MAKERS)
def test_an_update_in_pieces_is_the_optimisers(make: Make) -> None:
    """Bit for bit, weights and moments, over pieces that end inside weights."""
    assert all(torch.equal(one, other) for one, other in _after_three_steps(make))


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("make", MAKERS)
def test_threads_that_share_the_pieces_change_no_more_than_a_rounding(make: Make) -> None:
    """PyTorch's own threads end their shares elsewhere."""
    for one, other in _after_three_steps(make):
        assert torch.allclose(one, other, rtol=2.0**-21, atol=2.0**-23)


class _Own(SGD):
    """An optimiser of the user's: whatever it does is its own."""


def _with_hook(weights: list[nn.Parameter]) -> Optimizer:
    optimiser = SGD(weights, lr=0.1)
    optimiser.register_step_pre_hook(lambda *_: None)
    return optimiser


def _with_schedule(weights: list[nn.Parameter]) -> Optimizer:
    optimiser = SGD(weights, lr=0.1)
    StepLR(optimiser, 1)
    return optimiser


@pytest.mark.parametrize(
    "make",
    [
        lambda weights: _Own(weights, lr=0.1),
        lambda weights: RMSprop(weights, lr=0.1),
        lambda weights: AdamW(weights, amsgrad=True),
        lambda weights: AdamW(weights, fused=True),
        lambda weights: SGD(weights, lr=0.1, foreach=True),
        lambda weights: SGD(weights, lr=torch.tensor(0.1)),
        _with_hook,
        _with_schedule,
    ],
)
def test_what_is_not_plainly_known_updates_by_itself(make: Make) -> None:
    """Other optimisers, other forms of these, hooks and schedulers."""
    weights = [nn.Parameter(torch.zeros(3))]
    assert known_kind(make(weights), weights) is None


def test_weights_in_another_layout_update_by_themselves() -> None:
    """A piece of the sum is a piece of a weight only where its values lie in their order."""
    weights = [nn.Parameter(torch.zeros(3, 4).T)]
    assert known_kind(SGD(weights, lr=0.1), weights) is None


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_an_engines_steps_are_those_of_its_gradients(plan: Plan, make_model: MakeModel, data: Data, name: str) -> None:
    """Step by step the same bits as the noisy mean taken by PyTorch's optimiser; no gradient stays."""
    options: dict[str, Any] = {"lr": 0.2, "weight_decay": 0.01}
    models = [make_model(), make_model()]
    optimisers = [getattr(torch.optim, name)(model.parameters(), **options) for model in models]
    engines = [Engine(plan, model, cross_entropy, data, 8) for model in models]
    drawn = [CsprngRandomness(KEY) for _ in models]
    for step in range(1, 5):
        engines[0].step(step, optimisers[0], drawn[0])
        engines[1].set_gradients(step, drawn[1])
        optimisers[1].step()
        assert all(value.grad is None for value in models[0].parameters())
        for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
            assert torch.equal(one, other)
