"""The engine taken apart: neighbours replayed with the same randomness, and a wrong sum noticed."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.functional import cross_entropy

from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.neighbours import replay
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Certify, Engine
from trainer_adapter.dpsgd.self_check import SelfCheckFailed

PLAN = Plan(Fraction(1, 2), Fraction(1), Fraction(1, 3), 10, 8)


class Scaled(nn.Module):
    """A linear layer whose output is multiplied by a number that Python holds, and tracing cannot see."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.scale = nn.Linear(4, 3), 1.0

    def forward(self, x: Tensor) -> Tensor:
        """Shape (records, 3)."""
        y: Tensor = self.inner(x) * self.scale
        return y


def _data(changed: int | None = None, value: float = 0.0) -> tuple[Tensor, Tensor]:
    inputs = torch.randn((20, 4), generator=torch.Generator().manual_seed(1)) * 3
    if changed is not None:
        inputs[changed] = value
    return inputs, torch.arange(20) % 3


def _model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 3))


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_neighbours_differ_in_one_contribution(precision: str) -> None:
    """Same draw, every other contribution the same bit by bit, and a sum moved by at most twice C."""
    model, data, seen = _model(), _data(), set()
    ours, theirs = (Engine(PLAN, model, cross_entropy, each, 4, precision=precision) for each in (_data(), data))
    for changed, value in ((2, 0.0), (5, 1e20), (13, float("nan"))):
        data[0].copy_(_data(changed, value)[0])
        for step in (1, 2):
            found = replay(ours, theirs, step, *(CsprngRandomness(bytes(32)) for _ in range(2)))
            assert found.differ == ((changed,) if changed in found.drawn else ())
            assert found.moved <= 2 * float(PLAN.clipping_norm)
            seen.add(changed in found.drawn)
    assert seen == {True, False}


def test_a_zeroed_record_moves_the_sum_by_at_most_c() -> None:
    """A record that is not finite stands for one put to zero: the neighbour's sum is at most C away, and nearly so."""
    model, data = _model(), _data()
    ours, theirs = (Engine(PLAN, model, cross_entropy, each, 4) for each in (_data(), data))
    for changed in range(6):
        data[0].copy_(_data(changed, float("inf"))[0])
        found = replay(ours, theirs, 1, *(CsprngRandomness(bytes(32)) for _ in range(2)))
        assert found.moved <= float(PLAN.clipping_norm)
        assert (found.moved > 0.99 * float(PLAN.clipping_norm)) == (changed in found.drawn)


@pytest.mark.parametrize(("certify", "steps"), [("always", [3]), ("first_step", [1]), ("dummies", [])])
def test_a_sum_that_is_not_the_records_ends_the_run(certify: Certify, steps: list[int]) -> None:
    """The model changes behind the engine's back: noticed where asked for, before noise is drawn or a value moves."""
    model = Scaled()
    engine = Engine(PLAN, model, cross_entropy, _data(), 4, certify=certify)
    optimiser, randomness = torch.optim.SGD(model.parameters(), lr=1.0), CsprngRandomness(bytes(32))
    noticed = []
    for step in (1, 2, 3):
        if step == (1 if certify == "first_step" else 3):
            model.scale = -2.0
        before = [value.clone() for value in model.parameters()]
        try:
            engine.step(step, optimiser, randomness)
        except SelfCheckFailed:
            noticed.append(step)
            assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
            assert randomness.stream("noise", step).take(1)
    assert noticed == steps


def test_an_unknown_way_to_certify_is_refused() -> None:
    """A misspelt one would else check nothing, silently."""
    with pytest.raises(Malformed, match=r"^certify: must be one of dummies, first_step, always"):
        Engine(PLAN, _model(), cross_entropy, _data(), certify="first")  # type: ignore[arg-type] # a wrong one


def test_an_honest_run_passes_its_own_check() -> None:
    """Certified at every step, records that are not finite among them, nothing is found."""
    model = _model()
    engine = Engine(PLAN, model, cross_entropy, _data(3, float("nan")), 4, certify="always")
    optimiser, randomness = torch.optim.SGD(model.parameters(), lr=0.1), CsprngRandomness(bytes(32))
    for step in range(1, 6):
        engine.step(step, optimiser, randomness)
    assert all(torch.isfinite(value).all() for value in model.parameters())


class InPlace(nn.Module):
    """Its second use of x comes after x was changed where it lies."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Shape (records, 4)."""
        h = x * 2
        y: Tensor = self.inner(h)
        h.mul_(3)
        return y + h


def test_a_model_traced_wrongly_is_refused_on_dummies() -> None:
    """An input overwritten after its use gives other gradients than records one by one, or none: refused."""
    with pytest.raises(Malformed, match=r"^model: (gives other gradients traced|does not run|gives no gradients)"):
        Engine(PLAN, InPlace(), cross_entropy, _data(), 4)


class KeepsLate(nn.Module):
    """Runs in turn, since it writes in place, and adds what it kept of a record from its ninth traced call on."""

    def __init__(self, *, keeps: bool) -> None:
        super().__init__()
        self.inner, self.keeps, self.traced = nn.Linear(4, 3), keeps, 0
        self.kept: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        """Shape (records, 3)."""
        y = torch.zeros(len(x), 3)
        y[:, :] = self.inner(x)
        if self.keeps and isinstance(x, FakeTensor):
            self.traced += 1
            if self.traced > 8:
                y = y + sum(self.kept[-1:], torch.zeros(1))
                self.kept.append(y)
        return y


def test_a_model_that_begins_late_to_keep_a_record_is_refused() -> None:
    """No comparison of the first few dummies shows it: the places before the ninth are computed alone."""
    Engine(PLAN, KeepsLate(keeps=False), cross_entropy, _data(), 16)
    with pytest.raises(Malformed, match="keeps something of one record for the next"):
        Engine(PLAN, KeepsLate(keeps=True), cross_entropy, _data(), 16)


@pytest.mark.parametrize(("certify", "sees"), [("dummies", False), ("first_step", True)])
def test_a_models_hooks_see_records_only_where_they_are_certified(
    certify: Certify, *, sees: bool, randomness: CsprngRandomness
) -> None:
    """By default its Python runs on public dummies alone, whatever it registers."""
    model, (inputs, targets) = _model(), _data()
    seen: list[Tensor] = []
    model.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach().clone()))
    engine = Engine(PLAN, model, cross_entropy, (inputs, targets), 4, certify=certify)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    seen.clear()
    for step in (1, 2):
        engine.step(step, optimiser, randomness)
    known = [row for given in seen for row in given.reshape(-1, 4) if (row == inputs).all(dim=1).any()]
    assert bool(known) is sees
    assert sees or not seen
