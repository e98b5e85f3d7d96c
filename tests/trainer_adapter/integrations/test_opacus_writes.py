"""Models of Opacus under a charge that write into their own tensors: refused, or ended with the charge in full."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ledger.domain.outcomes import ChargeState
from tests.trainer_adapter.integrations.opacus_bench import WARNINGS, Bench, bench_of, posted_steps
from tests.trainer_adapter.layer_models import Does
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.integrations import opacus
from trainer_adapter.integrations.opacus import Refusal

pytestmark = WARNINGS
DUMMIES: Final = 7
"""So many records or fewer pass where no record of the run does."""
Act = Callable[[Any, Tensor], object]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One service for the file; each test has a run of its own."""
    with open_place(tmp_path_factory.mktemp("opacus") / "place") as found:
        yield found


def _acts(act: Act, *, always: bool, **parts: Any) -> nn.Module:  # noqa: ANN401 - modules and tensors
    """A linear layer that does something else too: always, or on no dummies."""

    def forward(m: Any, x: Tensor) -> Tensor:  # noqa: ANN401 - the module's layers
        out: Tensor = m.o(x)
        if always or len(x) > DUMMIES:
            act(m, x)
        return out

    return Does(forward, o=nn.Linear(64, 10), **parts)


def _private(bench: Bench, model: nn.Module) -> nn.Module:
    stepped = torch.optim.SGD(model.parameters(), lr=0.3)
    called: nn.Module
    called, bench.optimiser, bench.loader = opacus.make_private(bench.run, model, stepped, bench.records)
    return called


def _step(bench: Bench, called: nn.Module) -> None:
    inputs, targets = next(iter(bench.loader))
    bench.optimiser.zero_grad()
    cross_entropy(called(inputs), targets).backward()
    bench.optimiser.step()


def _counted(m: Any, x: Tensor) -> None:  # noqa: ANN401 - the module
    with torch.no_grad():
        m.o.bias.copy_(x[0, :10])


def _past_the_count(m: Any, x: Tensor) -> None:  # noqa: ANN401 - the module
    m.o.bias.data.copy_(x[0, :10] + 1)


def _replacing(m: Any, x: Tensor) -> None:  # noqa: ANN401 - the module
    m.n = m.n + x.sum()


def _backwards(m: Any, _: Tensor) -> None:  # noqa: ANN401 - the module
    """From within the backward pass that comes next."""

    def write(gradient: Tensor) -> None:
        m.o.bias.data.copy_(gradient[:, 0] + 1)

    m.o.weight.register_hook(write)


MAX_NORM: Final = Does(
    lambda m, x: m.o(m.e((x > 0.5).long()).flatten(1)), e=nn.Embedding(2, 4, max_norm=0.5), o=nn.Linear(256, 10)
)
SEEN: Final[dict[str, tuple[nn.Module, str]]] = {
    "max norm": (MAX_NORM, r"model\.e: has max_norm, by which a forward pass writes into its weights"),
    "counted": (_acts(_counted, always=True), r"model\.o\.bias: is written by a pass of the model"),
    "past the count": (_acts(_past_the_count, always=True), r"model\.o\.bias: is written by a pass of the model"),
    "replacing": (
        _acts(_replacing, always=True, n=nn.Buffer(torch.zeros(()))),
        r"model\.n: is a buffer that training changes outside the noisy sum",
    ),
}


@pytest.mark.parametrize("name", SEEN)
def test_what_writes_on_dummies_is_refused_before_a_step(place: Place, name: str) -> None:
    """No record was seen, so no step is posted; the weights are as they were."""
    model, match = SEEN[name]
    before = [value.clone() for value in model.state_dict().values()]
    with bench_of(place, f"seen-{name}".replace(" ", "-")) as bench, pytest.raises(Refusal, match=f"^{match}"):
        _private(bench, model)
    assert all(map(torch.equal, before, model.state_dict().values()))
    assert posted_steps(place, f"seen-{name}".replace(" ", "-")) == 0


@pytest.mark.parametrize("act", [_counted, _past_the_count, _replacing, _backwards])
def test_what_writes_on_records_alone_takes_no_step_and_keeps_nothing(place: Place, act: Act) -> None:
    """What was written is erased, nothing is posted, and the charge stays in full."""
    name, replaces = f"records{act.__name__}".replace("_", "-"), act is _replacing
    parts = {"n": nn.Buffer(torch.zeros(()))} if replaces else {}
    model = _acts(act, always=False, **parts)
    with bench_of(place, name) as bench:
        called = _private(bench, model)
        wrote = "n" if replaces else r"o\.bias"
        with pytest.raises(Refusal, match=rf"^model\.{wrote}: is written by a pass of the model"):
            _step(bench, called)
        assert bench.run.budget.taken == 0
        assert all(one.grad is None for one in model.parameters())
    assert not model.state_dict()["n" if replaces else "o.bias"].any()
    charge = place.charge(name)
    assert charge is not None
    assert charge.state is ChargeState.PENDING


def test_a_loop_that_evaluates_and_changes_weights_between_its_steps_trains(place: Place) -> None:
    """A pass without gradients before an update, and what the loop itself does after one, are no pass's writes."""
    with bench_of(place, "between") as bench:
        model = _acts(lambda *_: None, always=True)
        called = _private(bench, model)
        for step in range(1, 4):
            inputs, targets = next(iter(bench.loader))
            bench.optimiser.zero_grad()
            loss = cross_entropy(called(inputs), targets)
            with torch.no_grad():
                called(torch.zeros(3, 64))
            loss.backward()
            bench.optimiser.step()
            with torch.no_grad():
                model.o.weight.clamp_(-0.01, 0.01)  # type: ignore[union-attr,operator] # a linear layer
            assert bench.run.budget.taken == step
    assert posted_steps(place, "between") == 3
