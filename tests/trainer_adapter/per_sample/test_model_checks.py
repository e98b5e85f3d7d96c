"""Models on which the engine could not keep its promise are refused by name, before a record is looked at."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from msgspec import structs
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear
from torch.nn.utils.parametrizations import spectral_norm
from torch.nn.utils.rnn import pack_padded_sequence

from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.dpsgd.poisson_sampler import Microbatch

if TYPE_CHECKING:
    from ledger.mechanisms.plan import Plan

DATA = (torch.zeros(6, 4), torch.zeros(6, dtype=torch.int64))


class _Around(nn.Module):
    """A linear layer with something done to its output."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)


class _BatchMean(_Around):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x)
        return y - y.mean(dim=0)


class _BatchMeanBehindZeroHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mixes, self.head = _BatchMean(), nn.Linear(4, 3)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.mixes(x))
        return y


class _Counts(_Around):
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += x.sum()
        y: Tensor = self.inner(x)
        return y


class _Noisy(_Around):
    """Draws from PyTorch's generator, or from one of its own."""

    def __init__(self, own: torch.Generator | None = None) -> None:
        super().__init__()
        self.own = own

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x)
        return y + torch.randn(4, generator=self.own)


class _Packed(_Around):
    """Its records have lengths of their own, which choose how many run at each position."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(1, 4)

    def forward(self, x: Tensor) -> Tensor:
        packed = pack_padded_sequence(x.T[..., None], torch.full((len(x),), 4))
        y: Tensor = self.inner(self.layer(packed)[1][0][0])
        return y


class _Detached(_Around):
    def __init__(self) -> None:
        super().__init__()
        self.before = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(self.before(x).detach())
        return y


class _Closure(_Around):
    """Its second layer is reached behind the module's back, where a functional call cannot put values in."""

    def __init__(self) -> None:
        super().__init__()
        weight = nn.Parameter(torch.ones(4, 4))
        self.weight = weight
        self.apply_weight: Callable[[Tensor], Tensor] = lambda y: linear(y, weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.apply_weight(self.inner(x))


class _Tied(_Around):
    """One weight used twice, once through ``torch.nn.functional``: legal, and counted whole."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(torch.tanh(self.inner(x)), self.inner.weight)


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "batch norm": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)),
        r"model\.1: is a batch normalisation",
    ),
    "batch norm without statistics": (
        lambda: nn.BatchNorm1d(4, track_running_stats=False),
        "model: is a batch norm",
    ),
    "running statistics": (
        lambda: nn.Sequential(nn.Unflatten(1, (2, 2)), nn.InstanceNorm1d(2, affine=True, track_running_stats=True)),
        r"model\.1: keeps running statistics",
    ),
    "mean over the batch": (_BatchMean, "model: lets one record change the output of another"),
    "mean behind a zero layer": (
        _BatchMeanBehindZeroHead,
        "model: lets one record change the output of another",
    ),
    "buffer": (_Counts, r"model\.calls: is a buffer that training changes"),
    "random slope": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.RReLU()),
        r"model: draws randomness by torch\.nn\.functional\.rrelu: only dropout is drawn",
    ),
    "noise": (_Noisy, r"model: draws randomness by torch\.randn"),
    "noise of its own": (lambda: _Noisy(torch.Generator()), r"model: draws randomness by torch\.randn"),
    "packed": (_Packed, r"model: packs sequences: give a recurrent layer padded ones, all of one length"),
    "spectral norm": (
        lambda: spectral_norm(nn.Linear(4, 3)),
        r"model\.parametrizations\.weight\.0\._u: is a buffer that training changes",
    ),
    "detached": (_Detached, r"model\.before\.weight: gets no gradient"),
    "closure": (_Closure, r"model\.weight: gets no gradient"),
    "half precision": (lambda: nn.Linear(4, 3).to(torch.bfloat16), "must be float32"),
    "nothing to train": (
        lambda: nn.Linear(4, 3).requires_grad_(requires_grad=False),
        "has no parameter that trains",
    ),
    "records folded": (
        lambda: nn.Sequential(nn.Linear(4, 3), nn.Flatten(0)),
        "whose first dimension counts the records",
    ),
    "wrong size": (lambda: nn.Linear(5, 3), "does not run on a batch of public dummy records"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_engine_cannot_promise_on_is_refused(plan: Plan, name: str) -> None:
    """Each kind of model is refused with its place and its reason."""
    make, reason = REFUSED[name]
    with pytest.raises(Malformed, match=reason):
        Engine(plan, make(), cross_entropy, DATA)


def test_a_tied_weight_is_taken_and_clipped_whole(plan: Plan) -> None:
    """The gradient of a weight used twice is that of both uses, so its norm misses neither."""
    torch.manual_seed(1)
    model, inputs, target = _Tied(), torch.rand(1, 4), torch.zeros(1, dtype=torch.int64)
    engine = Engine(structs.replace(plan, clipping_norm=Fraction(1000)), model, cross_entropy, (inputs, target))
    ours = engine.clipped_sum([Microbatch(np.array([0]), np.array([True]))])
    gradients = torch.autograd.grad(cross_entropy(model(inputs), target), list(model.parameters()))
    expected = torch.cat([gradient.reshape(-1) for gradient in gradients])
    assert torch.allclose(ours.to(torch.float32), expected, atol=1e-6)


def test_a_frozen_parameter_is_left_alone(plan: Plan) -> None:
    """What does not train gets no gradient, and does not count as unreached."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    model[0].requires_grad_(requires_grad=False)
    assert Engine(plan, model, cross_entropy, DATA).size == 15


def test_checking_changes_nothing_in_the_model(plan: Plan) -> None:
    """The check leaves parameters, buffers and torch's own generator as they were, a layer used twice included."""
    twice = nn.Linear(4, 4)
    model = nn.Sequential(twice, nn.LayerNorm(4), twice, nn.Linear(4, 3))
    parameters = [id(value) for value in model.parameters()]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    Engine(plan, model, cross_entropy, DATA)
    assert torch.equal(state, torch.get_rng_state())
    assert [id(value) for value in model.parameters()] == parameters
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(value.grad is None for value in model.parameters())


def test_an_optimiser_over_other_tensors_is_refused(plan: Plan) -> None:
    """A tensor the engine puts no noisy gradient on is updated by nobody, and none of ours is left out."""
    model, other = nn.Linear(4, 3), nn.Linear(4, 3)
    engine = Engine(plan, model, cross_entropy, DATA)
    with pytest.raises(Malformed, match=r"^optimiser: updates a tensor"):
        engine.traced.check_optimiser(torch.optim.SGD([*model.parameters(), *other.parameters()], lr=1.0))
    with pytest.raises(Malformed, match=r"^optimiser: leaves out"):
        engine.traced.check_optimiser(torch.optim.SGD([model.weight], lr=1.0))


def test_state_that_is_no_tensor_is_refused(plan: Plan) -> None:
    """Before anything is charged: no file could hold it, and no digest of the run's state names it."""

    class Counts(nn.Linear):
        def get_extra_state(self) -> dict[str, int]:
            return {"calls": 1}

    with pytest.raises(Malformed, match=r"^model\.1\._extra_state: is state that is no tensor"):
        Engine(plan, nn.Sequential(nn.Flatten(), Counts(4, 3)), cross_entropy, DATA)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
def test_a_compiled_module_is_refused_with_what_to_pass(plan: Plan) -> None:
    """Its calls would not be seen; the engine compiles by itself."""
    model: Callable[..., object] = torch.compile(nn.Linear(4, 3))
    assert isinstance(model, nn.Module)
    with pytest.raises(Malformed, match=r"^model: is the compiled form of a module: pass the module"):
        Engine(plan, model, cross_entropy, DATA)


def test_an_optimiser_of_sparse_gradients_is_refused(plan: Plan) -> None:
    """Noise makes every gradient dense."""
    model = nn.Linear(4, 3)
    with pytest.raises(Malformed, match=r"^optimiser: takes sparse gradients alone"):
        Engine(plan, model, cross_entropy, DATA).traced.check_optimiser(
            torch.optim.SparseAdam(list(model.parameters()))
        )


def _replace(model: nn.Linear) -> None:
    model.weight = nn.Parameter(model.weight.detach().clone())


def _freeze(model: nn.Linear) -> None:
    model.bias.requires_grad = False


def _remove(model: nn.Linear) -> None:
    model.register_parameter("bias", None)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (_replace, r"^model\.weight: was added, removed or replaced in the loop"),
        (_freeze, r"^model\.bias: is frozen since the run began"),
        (_remove, r"^model\.bias: was added, removed or replaced"),
    ],
)
def test_a_parameter_changed_in_the_loop_is_named(plan: Plan, change: Callable[[nn.Linear], None], rule: str) -> None:
    """What was traced is what trains: nothing else gets the noisy gradient."""
    model = nn.Linear(4, 3)
    engine = Engine(plan, model, cross_entropy, DATA)
    engine.traced.check_unchanged()
    change(model)
    with pytest.raises(Malformed, match=rule):
        engine.traced.check_unchanged()


def test_data_that_does_not_fit_together_is_refused(plan: Plan) -> None:
    """Inputs and targets of different lengths are refused."""
    with pytest.raises(Malformed, match=r"^data: has 6 inputs but 5 targets"):
        Engine(plan, nn.Linear(4, 3), cross_entropy, (DATA[0], DATA[1][:5]))
