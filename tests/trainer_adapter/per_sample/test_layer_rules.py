"""Every kind of layer, and every way a parameter can be used, against records taken one by one in float64."""

from __future__ import annotations

from copy import deepcopy
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.functional import cross_entropy

from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.layer_models import KINDS, Adapter, numbers
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.dpsgd.poisson_sampler import microbatches
from trainer_adapter.per_sample import graph_execution

if TYPE_CHECKING:
    from trainer_adapter.dpsgd.poisson_sampler import Microbatch

CLIPPING: Final = Fraction(1, 2)
PLAN: Final = Plan(Fraction(1, 2), Fraction(1), CLIPPING, 10, 4)


def _all(size: int = 4) -> list[Microbatch]:
    return list(microbatches(np.arange(7), size))


def _reference(model: nn.Module, data: tuple[Tensor, Tensor], bound: float) -> Tensor:
    """The clipped sum by a loop over records, everything in float64."""
    exact = deepcopy(model).double()
    inputs = data[0].double() if data[0].is_floating_point() else data[0]
    trained = [value for value in exact.parameters() if value.requires_grad]
    total = torch.zeros(sum(value.numel() for value in trained), dtype=torch.float64)
    for record in range(len(inputs)):
        loss = cross_entropy(exact(inputs[record : record + 1]), data[1][record : record + 1])
        parts = torch.autograd.grad(loss, trained, materialize_grads=True)
        gradient = torch.cat([part.to_dense().flatten() for part in parts])
        total += gradient * min(1.0, bound / float(gradient.norm()))
    return total


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN:UserWarning")
@pytest.mark.parametrize("name", KINDS)
def test_a_layers_clipped_sum_is_that_of_records_one_by_one(name: str) -> None:
    """In float32, to a few parts in a million; parameters start at random, so that every layer matters."""
    torch.manual_seed(11)
    make, data = KINDS[name]
    model = make()
    engine = Engine(PLAN, model, cross_entropy, data, 4)
    expected = _reference(model, data, engine.bound)
    apart = (engine.clipped_sum(_all()) - expected).norm() / expected.norm()
    assert apart < 3e-5, (name, engine.kernels)


def _block(kind: str, width: int) -> list[nn.Module]:
    if kind == "linear":
        return [nn.Linear(width, width), nn.Tanh()]
    if kind == "conv":
        return [nn.Unflatten(-1, (2, width // 2)), nn.Conv1d(2, 2, 3, padding=1), nn.Flatten(1), nn.GELU()]
    if kind == "norm":
        return [nn.LayerNorm(width)]
    if kind == "group":
        return [nn.GroupNorm(2, width)]
    if kind == "adapter":
        return [Adapter(width, width)]
    return [nn.RMSNorm(width), nn.PReLU()]


@settings(deadline=None, max_examples=6)
@given(
    kinds=st.lists(st.sampled_from(["linear", "conv", "norm", "group", "adapter", "other"]), min_size=1, max_size=5),
    seed=st.integers(0, 10**6),
    precision=st.sampled_from(["float32", "float64"]),
)
def test_networks_put_together_at_random(kinds: list[str], seed: int, precision: str) -> None:
    """Whatever follows whatever, the sum is that of records one by one."""
    torch.manual_seed(seed)
    model = nn.Sequential(*(layer for kind in kinds for layer in _block(kind, 8)), nn.Linear(8, 4))
    data = (torch.randn(7, 8), torch.arange(7) % 4)
    engine = Engine(PLAN, model, cross_entropy, data, 4, precision=precision)
    expected = _reference(model, data, engine.bound)
    assert (engine.clipped_sum(_all()) - expected).norm() / expected.norm() < 1e-4


@pytest.mark.parametrize("precision", ["bfloat16", "bfloat16_products"])
@pytest.mark.parametrize("name", ["transformer layer", "embedding, tied by function", "conv2d"])
def test_bfloat16_is_near_and_never_longer(name: str, precision: str) -> None:
    """Under autocast gradients are a little other ones; no record's contribution is longer than C, exactly."""
    torch.manual_seed(11)
    make, data = KINDS[name]
    model = make()
    engine = Engine(PLAN, model, cross_entropy, data, 4, precision=precision)
    expected = _reference(model, data, engine.bound)
    assert 1e-6 < (engine.clipped_sum(_all()) - expected).norm() / expected.norm() < 0.05
    for batch in _all():
        for place in batch.mask.nonzero()[0]:
            alone = engine.clipped_sum([batch.only(int(place))])
            assert sum(Fraction(value) ** 2 for value in alone.tolist()) <= CLIPPING**2


def test_a_graph_that_does_not_compile_is_told() -> None:
    """Without a compiler there is no run, and no other graph in the place of the one that was asked for."""
    from torch._inductor import config

    broken = config.patch({"cpp.cxx": (None, "/bin/false")})
    with broken, pytest.raises(Malformed, match=r"^compiled: the model does not compile: .*compiler"):
        Engine(PLAN, nn.Linear(3, 2), cross_entropy, numbers(3), 2, compiled=True)


def test_a_short_run_is_not_compiled_and_a_long_one_only_where_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``"auto"``, where no compiler works: the traced graph runs, and nothing is tried for a short run."""
    from torch._inductor import config

    tried = []
    compile_graph: Any = torch.compile

    def counted(graph: nn.Module, **named: bool) -> object:
        tried.append(graph)
        return compile_graph(graph, **named)

    monkeypatch.setattr(torch, "compile", counted)
    with config.patch({"cpp.cxx": (None, "/bin/false")}):
        short = Engine(PLAN, nn.Linear(3, 2), cross_entropy, numbers(3), 2, compiled="auto")
        assert (short.compiled, tried) == (False, [])
        monkeypatch.setattr(graph_execution, "WORTH_S", 0)
        long = Engine(PLAN, nn.Linear(3, 2), cross_entropy, numbers(3), 2, compiled="auto")
        assert (long.compiled, len(tried)) == (False, 1)
    with pytest.raises(Malformed, match=r"^compiled: must be"):
        Engine(PLAN, nn.Linear(3, 2), cross_entropy, numbers(3), 2, compiled="always")  # type: ignore[arg-type] # refused


@pytest.mark.parametrize(("times", "kept"), [(0, True), (5, False)])
def test_the_faster_graph_is_kept(monkeypatch: pytest.MonkeyPatch, times: int, *, kept: bool) -> None:
    """Where compiling gives a graph that runs the traced one five times, or not at all."""

    def compile_graph(graph: nn.Module, **_: bool) -> object:
        return lambda value: [value, *(graph(value) for _ in range(times))][-1]

    monkeypatch.setattr(torch, "compile", compile_graph)
    traced = make_fx(lambda value: value @ value)(torch.ones(200, 200))
    _, compiled = graph_execution.execution_of("auto", traced, [torch.ones(200, 200)], runs=1 << 40)
    assert compiled is kept


@pytest.mark.parametrize("size", [1, 3, 8])
def test_the_size_of_a_microbatch_changes_nothing(size: int) -> None:
    """The same records in other microbatches give the same sum."""
    torch.manual_seed(11)
    make, data = KINDS["conv2d in groups"]
    model = make()
    sums = [Engine(PLAN, model, cross_entropy, data, each).clipped_sum(_all(each)) for each in (4, size)]
    assert torch.allclose(sums[0], sums[1], rtol=1e-4, atol=1e-6)


class _AsksForAValue(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        """One thing or another."""
        y: Tensor = self.inner(x)
        return y * 2 if bool(y[0].sum() > 1e6) else y


def test_a_model_that_looks_at_values_is_refused() -> None:
    """What a record holds must not choose which operations run."""
    with pytest.raises(Malformed, match=r"^model: gives no gradients record by record"):
        Engine(PLAN, _AsksForAValue(), cross_entropy, numbers(4))


def test_unknown_precision_and_too_small_a_norm_are_refused() -> None:
    """The names are told; a clipping norm at which underflow would count needs float64."""
    model, data = nn.Linear(4, 4), numbers(4)
    with pytest.raises(Malformed, match=r"^precision: must be one of float32, bfloat16, bfloat16_products, float64"):
        Engine(PLAN, model, cross_entropy, data, precision="float16")
    small = structs.replace(PLAN, clipping_norm=Fraction(1, 1 << 41))
    with pytest.raises(Malformed, match=r"^clipping_norm: is too small for float32"):
        Engine(small, model, cross_entropy, data)
    assert Engine(small, model, cross_entropy, data, precision="float64").bound < 2.0**-41
