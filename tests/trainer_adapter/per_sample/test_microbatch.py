"""Models that ``vmap`` cannot run for all units at once: recurrent layers, and those that run once for each unit."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import deepcopy
from fractions import Fraction
from typing import Final

import numpy as np
import pytest
import torch
from msgspec import structs
from torch import Tensor, nn
from torch.func import vmap
from torch.nn.functional import cross_entropy

from ledger.mechanisms.plan import Plan
from ledger.mechanisms.run_plan import USER
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.layer_models import CLASSES, KINDS, RECORDS, Data, Does, numbers, writes
from tests.trainer_adapter.neighbours import contributions, replay
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.per_sample.unit_maps import looped, vectorised

PLAN: Final = Plan(Fraction(1, 2), Fraction(1), Fraction(1, 3), 10, 4)
ALL: Final = np.arange(RECORDS)
NAMES: Final = ("lstm", "written in place")


def _made(name: str) -> tuple[nn.Module, Data]:
    torch.manual_seed(11)
    make, data = KINDS[name]
    return make(), data


def test_writing_in_place_is_what_vmap_refuses() -> None:
    """The model that stands for all that run in turn does have to."""
    model, data = _made("written in place")
    with pytest.raises(RuntimeError, match="inplace"):
        vmap(lambda one: model(one[None]))(data[0])


def test_in_turn_is_as_vectorised() -> None:
    """Arguments that are shared or not, in containers or not, and results likewise."""

    def body(shared: Tensor, own: dict[str, Tensor], last: Tensor) -> tuple[Tensor, list[Tensor]]:
        return shared @ own["a"] + last, [own["a"].outer(shared)]

    args = (torch.randn(3), {"a": torch.randn(5, 3)}, torch.randn(5))
    ours, theirs = (each(body, in_dims=(None, 0, 0))(*args) for each in (looped, vectorised))
    assert torch.allclose(ours[0], theirs[0])
    assert torch.allclose(ours[1][0], theirs[1][0])


def _write_states(m: Does, x: Tensor) -> Tensor:
    y, state = torch.zeros(len(x), 2, 3), None
    for at in range(2):
        y[:, at] = state = m.cell(x[:, at], state)
    logits: Tensor = m.head(y.flatten(1))
    return logits


@pytest.mark.soak
def test_a_compiled_graph_gives_the_same_sum() -> None:
    """Compiled or as it is: the same, up to the order in which terms are added."""
    torch.manual_seed(11)
    model, data = Does(_write_states, cell=nn.RNNCell(3, 3), head=nn.Linear(6, CLASSES)), numbers(2, 3)
    eager, compiled = (Engine(PLAN, model, cross_entropy, data, 2, compiled=yes) for yes in (False, True))
    sums = [engine.clipped_sum(engine.microbatches(ALL)) for engine in (eager, compiled)]
    assert (sums[0] - sums[1]).norm() < 1e-6 * sums[0].norm()


@pytest.mark.parametrize("name", NAMES)
def test_neighbours_differ_in_one_contribution(name: str) -> None:
    """One record zeroed, huge or not a number, in the same places of a batch: no other's contribution moves."""
    model, data = _made(name)
    changed = (data[0].clone(), data[1])
    ours, theirs = (Engine(PLAN, model, cross_entropy, one, 4) for one in (data, changed))
    for place, value in ((1, 0.0), (4, 1e20), (5, float("nan"))):
        changed[0].copy_(data[0])
        changed[0][place] = value
        found = replay(ours, theirs, 1, *(CsprngRandomness(bytes(32)) for _ in range(2)))
        assert found.differ == ((place,) if place in found.drawn else ())
        assert found.moved <= 2 * float(PLAN.clipping_norm)
        again = replay(ours, theirs, 2, *(CsprngRandomness(bytes(32)) for _ in range(2)))
        assert again.differ == ((place,) if place in again.drawn else ())


@pytest.mark.parametrize("name", NAMES)
def test_a_users_records_are_one_unit(name: str) -> None:
    """Each unit adds the clipped sum over its records, of which some have one and some two."""
    model, data = _made(name)
    users = torch.tensor([0, 1, 0, 2, 1, 3, 2])
    plan = structs.replace(PLAN, unit=USER, clipping_norm=Fraction(1000))
    engine = Engine(plan, model, cross_entropy, data, 4, users=users, records_per_user_max=2)
    ours = engine.clipped_sum(engine.microbatches(np.arange(4)))
    loss = cross_entropy(model(data[0]), data[1], reduction="sum")
    expected = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))])
    assert torch.allclose(ours.to(torch.float32), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_no_record_exceeds_the_clipping_norm(name: str) -> None:
    """In exact arithmetic, of what was added up."""
    model, data = _made(name)
    engine = Engine(PLAN, model, cross_entropy, (data[0] * 100, data[1]), 4)
    for one in contributions(engine, ALL):
        assert 0 < sum(Fraction(value) ** 2 for value in one.tolist()) <= PLAN.clipping_norm**2


def test_a_recurrent_layer_stays_its_owners() -> None:
    """Traced, stepped, copied: it computes with its own parameters, which the steps move."""
    model, data = _made("lstm")
    before = model(data[0])
    engine = Engine(PLAN, model, cross_entropy, data, 4)
    assert torch.equal(model(data[0]), before)
    engine.step(1, torch.optim.SGD(model.parameters(), lr=0.5), CsprngRandomness(bytes(32)))
    layer = model.layer
    assert isinstance(layer, nn.LSTM)
    assert [id(one) for one in layer._flat_weights] == [id(one) for one in layer.parameters()]  # noqa: SLF001 - where it keeps them
    after = model(data[0])
    assert not torch.allclose(after, before)
    assert torch.equal(deepcopy(layer)(data[0])[0], pickle.loads(pickle.dumps(layer))(data[0])[0])  # noqa: S301 - our own


def _by_numpy(x: Tensor) -> Tensor:
    return torch.from_numpy(x.detach().numpy()).sum(dim=(1, 2))


def _by_list(x: Tensor) -> Tensor:
    return torch.tensor([sum(map(sum, one)) for one in x.tolist()])


def _by_count(x: Tensor) -> Tensor:
    return torch.full((len(x),), float(len(torch.where(x[0] > 0)[0])))


def _by_choice(x: Tensor) -> Tensor:
    return x.sum(dim=(1, 2)) if bool(x[0, 0, 0] > 1e6) else x.mean(dim=(1, 2))


@pytest.mark.parametrize("look", [_by_numpy, _by_list, _by_count, _by_choice])
def test_a_value_taken_out_of_a_tensor_is_refused_in_turn_too(look: Callable[[Tensor], Tensor]) -> None:
    """Else that of a public dummy would stand for every record's."""
    inner = writes()
    model = Does(lambda m, x: m.inner(x) * (1 + 1e-9 * look(x)[:, None]), inner=inner)
    with pytest.raises(Malformed, match=r"^model: gives no gradients record by record: .* \(and in turn: "):
        Engine(PLAN, model, cross_entropy, numbers(3, 5))


def test_a_loss_that_draws_is_refused_in_turn_too() -> None:
    """By the name of the function that drew, as anywhere."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs + torch.rand(CLASSES), targets)

    with pytest.raises(Malformed, match=r"^model: draws randomness by torch\.rand:"):
        Engine(PLAN, writes(), loss, numbers(3, 5))


class _Remembering(nn.Module):
    """A model that ``vmap`` cannot run, and that hands on what a record was, where that is large enough to tell."""

    most: Tensor

    def __init__(self, keep: Callable[[_Remembering, Tensor], None]) -> None:
        super().__init__()
        self.inner, self.keep = writes(), keep
        self.register_buffer("most", torch.zeros(3, 5))
        self.state = torch.zeros(3, 5)
        self.past: list[Tensor] = [torch.zeros(3, 5)] * 2

    def forward(self, x: Tensor) -> Tensor:
        self.keep(self, x.detach())
        seen = self.state + self.past[-2] + self.most
        logits: Tensor = self.inner(x + torch.relu(seen - 1000).sum())
        return logits


def _into_a_tensor(m: _Remembering, x: Tensor) -> None:
    torch.maximum(m.state, x[0], out=m.state)


def _into_a_copy(m: _Remembering, x: Tensor) -> None:
    m.state = m.state.clone()
    m.state[0] = x[0, 0]


def _into_a_list(m: _Remembering, x: Tensor) -> None:
    m.past.append(x[0] * 1.0)


def _into_a_buffer(m: _Remembering, x: Tensor) -> None:
    m.most.copy_(torch.where(x[0] > 1000, x[0], m.most))


KEPT = r"model: .*(keeps a tensor from one record for the next|escaped)"
WRITTEN = r"model\.most: is a buffer that training changes outside the noisy sum"


@pytest.mark.parametrize(
    ("keep", "rule"), [(_into_a_tensor, KEPT), (_into_a_copy, KEPT), (_into_a_list, KEPT), (_into_a_buffer, WRITTEN)]
)
def test_what_is_kept_from_one_record_for_the_next_is_refused(
    keep: Callable[[_Remembering, Tensor], None], rule: str
) -> None:
    """Though no output on the public dummies shows it; or because what ``vmap`` left there is none any more."""
    with pytest.raises(Malformed, match=f"^{rule}"):
        Engine(PLAN, _Remembering(keep), cross_entropy, numbers(3, 5))
