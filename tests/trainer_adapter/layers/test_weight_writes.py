"""A pass that writes into the model's own tensors is refused on dummies, and ends the run where records make it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final, TypeAlias

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import cross_entropy

from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.layer_models import Does, numbers, words
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.layers.weight_writes import PassWrites, WeightsWritten, WriteWatch, unwritten

PLAN: Final = Plan(Fraction(1, 2), Fraction(8), Fraction(1), 6, 4)
Write: TypeAlias = Callable[[Tensor, Tensor], object]


def _frozen(module: nn.Module) -> nn.Module:
    return module.requires_grad_(requires_grad=False)


def _embedding(m: Does, x: Tensor) -> Tensor:
    out: Tensor = m.o(m.e(x).mean(1))
    return out


def _bag(m: Does, x: Tensor) -> Tensor:
    out: Tensor = m.o(m.e(x))
    return out


MAX_NORMS: Final[dict[str, Callable[[], nn.Module]]] = {
    "embedding": lambda: Does(_embedding, e=nn.Embedding(9, 5, max_norm=0.5), o=nn.Linear(5, 4)),
    "frozen embedding": lambda: Does(_embedding, e=_frozen(nn.Embedding(9, 5, max_norm=0.5)), o=nn.Linear(5, 4)),
    "bag": lambda: Does(_bag, e=nn.EmbeddingBag(9, 5, max_norm=0.5), o=nn.Linear(5, 4)),
}


@pytest.mark.parametrize("name", MAX_NORMS)
def test_max_norm_is_refused_by_the_name_of_its_layer(name: str) -> None:
    """The rows that a record looks up would be shortened in the weights themselves."""
    with pytest.raises(Malformed, match=r"^model\.e: has max_norm, by which a forward pass writes .*: leave it out"):
        Engine(PLAN, MAX_NORMS[name](), cross_entropy, words())


def test_max_norm_in_a_model_s_own_code_is_refused_by_the_name_of_its_weight() -> None:
    """No layer shows it; the count of writes does, though no row is longer than the norm."""

    def look_up(m: Does, x: Tensor) -> Tensor:
        out: Tensor = m.o(functional.embedding(x, m.w, max_norm=1e6).mean(1))
        return out

    model = Does(look_up, w=nn.Parameter(torch.ones(9, 5)), o=nn.Linear(5, 4))
    with pytest.raises(Malformed, match=r"^model\.w: is written by a pass of the model, outside the noisy sum"):
        Engine(PLAN, model, cross_entropy, words())
    assert torch.equal(model.w, torch.ones(9, 5))


WRITES: Final[dict[str, Write]] = {
    "the same values": lambda c, _: c.detach().mul_(1),
    "past the count": lambda c, x: c.data.copy_(x),
    "other memory": lambda c, x: setattr(c, "data", x.clone()),
    "running statistics": lambda c, x: functional.batch_norm(x.view(1, 6, 1).expand(1, 6, 2), c, c + 1, training=True),
}


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize("name", WRITES)
def test_any_write_into_a_weight_is_refused(name: str, *, trains: bool) -> None:
    """Whether or not the weight trains; what was refused is as it was."""

    def write(m: Does, x: Tensor) -> Tensor:
        out: Tensor = m.o(x) + 1e-3 * m.c.sum()
        with torch.no_grad():
            WRITES[name](m.c, x[0])
        return out

    model = Does(write, c=nn.Parameter(torch.ones(6), requires_grad=trains), o=nn.Linear(6, 4))
    with pytest.raises(Malformed, match=r"^model\.c: is written by a pass of the model"):
        Engine(PLAN, model, cross_entropy, numbers(6))
    assert torch.equal(model.c, torch.ones(6))


@pytest.mark.parametrize("write", [lambda c, x: c.detach().copy_(x), lambda c, x: c.data.copy_(x)])
def test_what_only_a_record_makes_a_model_write_ends_the_run_and_is_erased(write: Write) -> None:
    """No dummy is so large; the self-check runs the model's Python on records, which then lie in its bias."""

    def looks(m: Does, x: Tensor) -> Tensor:
        out: Tensor = m.o(x)
        try:
            large = float(x.max()) > 100
        except RuntimeError:
            # Under vmap no number can be taken out.
            return out
        if large:
            with torch.no_grad():
                write(m.o.bias, x[0, :4])
        return out

    model = Does(looks, o=nn.Linear(6, 4))
    inputs, targets = numbers(6)
    engine = Engine(PLAN, model, cross_entropy, (inputs + 200, targets), certify="always")
    randomness, stepped = CsprngRandomness(bytes(32)), torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(WeightsWritten, match=r"^model\.o\.bias: is written"):
        engine.step(1, stepped, randomness)
    assert torch.equal(model.o.bias, torch.zeros(4))
    assert model.o.weight.any()


@pytest.mark.parametrize("values", [True, False])
def test_a_block_in_which_nothing_is_written_passes(*, values: bool) -> None:
    """Reading and taking gradients is no write, of whatever type a tensor is."""
    kinds = [torch.float32, torch.bfloat16, torch.complex64, torch.complex128, torch.bool, torch.int64]
    named = {str(kind): torch.ones(3, 2).to(kind) for kind in kinds}
    named |= {"sparse": torch.eye(2).to_sparse(), "empty": torch.zeros(0), "number": torch.tensor(2.5)}
    with torch.inference_mode():
        named["inferred"] = torch.ones(2)
    with unwritten(named, values=values):
        assert sum(float(value.to_dense().real.sum()) for value in named.values()) > 0


def test_a_write_is_reported_beside_what_broke_and_erases_all_views_of_its_memory() -> None:
    """An error in the block does not hide it, and would quote a record."""
    whole = torch.ones(4)

    def broken() -> None:
        with unwritten({"a": whole[:2], "b": torch.ones(1)}):
            whole.add_(1)
            raise RuntimeError("a record")

    with pytest.raises(WeightsWritten) as caught:
        broken()
    assert caught.value.field == "model.a"
    assert torch.equal(whole, torch.zeros(4))


def test_each_kind_of_tensor_is_seen_to_change_by_its_values() -> None:
    """Where no count rises, the bits of each are compared."""
    kinds: list[Any] = [torch.float64, torch.float16, torch.complex64, torch.complex128, torch.bool, torch.uint8]
    for kind in kinds:
        value = torch.zeros(3).to(kind)
        watch = WriteWatch({"v": value}, values=True)
        assert watch.written() == []
        value.data[1] = 1
        assert watch.written() == ["v"], kind


def test_a_buffer_that_a_pass_replaces_is_held_to_the_one_before() -> None:
    """Nothing is written, yet another tensor is the model's."""
    model = nn.BatchNorm1d(2)
    passes = PassWrites()
    passes.begin(model)
    passes.end()
    passes.begin(model)
    model.running_mean = replaced = torch.ones(2)
    with pytest.raises(WeightsWritten, match=r"^model\.running_mean"):
        passes.end()
    assert torch.equal(replaced, torch.zeros(2))
