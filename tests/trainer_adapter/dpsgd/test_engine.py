"""The engine's promise: a record moves the sum by at most C, and the plan's noise is on it."""

from __future__ import annotations

import math
import resource
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.neighbours import contributions
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine, float_above, float_below
from trainer_adapter.dpsgd.poisson_sampler import Microbatch, draw, microbatches

if TYPE_CHECKING:
    from collections.abc import Callable

    MakeModel = Callable[[], nn.Module]
    Data = tuple[Tensor, Tensor]


def _batches(places: list[int], size: int = 8) -> list[Microbatch]:
    return list(microbatches(np.array(places, dtype=np.int64), size))


def _alone(model: nn.Module, data: Data, record: int) -> Tensor:
    """The gradient of one record by an ordinary backward pass: no vmap, no functional call."""
    loss = cross_entropy(model(data[0][record : record + 1]), data[1][record : record + 1])
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    return torch.cat([gradient.reshape(-1) for gradient in gradients]).to(torch.float64)


def test_each_contribution_is_a_single_records_gradient(plan: Plan, make_model: MakeModel, data: Data) -> None:
    """Not clipped at all, what every record adds is the gradient that backward gives for it alone."""
    model, places = make_model(), np.array([7, 0, 39, 20, 3])
    engine = Engine(structs.replace(plan, clipping_norm=Fraction(10**6)), model, cross_entropy, data)
    gradients = contributions(engine, places)
    assert gradients.shape == (5, sum(p.numel() for p in model.parameters()))
    for row, record in enumerate(places.tolist()):
        expected = _alone(model, data, record)
        assert torch.allclose(gradients[row], expected, rtol=1e-4, atol=1e-6 * float(expected.abs().max()))


def test_clipped_sum_equals_a_loop(plan: Plan, make_model: MakeModel, data: Data) -> None:
    """The sum is that of gradients clipped one by one, the short ones left as they are."""
    plan, model = structs.replace(plan, clipping_norm=Fraction(9, 4)), make_model()
    total = torch.zeros(sum(p.numel() for p in model.parameters()), dtype=torch.float64)
    lengths = []
    for record in range(40):
        gradient = _alone(model, data, record)
        lengths.append(float(gradient.norm()))
        total += gradient * min(1.0, 2.25 / lengths[-1])
    assert min(lengths) < 2.25 < max(lengths)
    engine = Engine(plan, model, cross_entropy, data, precision="float64")
    ours = engine.clipped_sum(_batches(list(range(40))))
    assert torch.allclose(ours, total, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("clipping_norm", [Fraction(1, 10**6), Fraction(1, 2), Fraction(1000)])
def test_no_record_alone_exceeds_the_clipping_norm(make_model: MakeModel, data: Data, clipping_norm: Fraction) -> None:
    """One record's contribution, measured in exact rational arithmetic, is at most C."""
    engine = Engine(Plan(Fraction(1), Fraction(1), clipping_norm, 1, 1), make_model(), cross_entropy, data)
    for record in range(0, 40, 3):
        alone = engine.clipped_sum(_batches([record]))
        assert sum(Fraction(value) ** 2 for value in alone.tolist()) <= clipping_norm**2


def test_removing_any_record_moves_the_sum_by_at_most_c(plan: Plan, make_model: MakeModel, data: Data) -> None:
    """Neighbour replay: same randomness, zero in a record's place, a move of at most C, exactly."""
    engine = Engine(plan, make_model(), cross_entropy, data)
    drawn = draw(CsprngRandomness(bytes(32)).stream("sampler", 1), 40, Fraction(3, 4)).tolist()
    full = engine.clipped_sum(_batches(drawn))
    moved = []
    for place in range(len(drawn)):
        batches = _batches(drawn)
        batches[place // 8].mask[place % 8] = False
        change = (full - engine.clipped_sum(batches)).tolist()
        moved.append(sum(Fraction(value) ** 2 for value in change))
    assert max(moved) <= plan.clipping_norm**2
    assert max(moved) > (plan.clipping_norm * Fraction(99, 100)) ** 2


@settings(deadline=None, max_examples=120)
@given(
    scale=st.floats(-1e30, 1e30),
    record=st.lists(st.floats(width=32), min_size=6, max_size=6),
    clipping_norm=st.sampled_from([Fraction(1, 10**12), Fraction(1, 3), Fraction(10**6)]),
    precision=st.sampled_from(["float32", "bfloat16", "bfloat16_products", "float64"]),
)
def test_any_record_at_all_is_held_to_c(
    scale: float, record: list[float], clipping_norm: Fraction, precision: str
) -> None:
    """Whatever a record holds, NaN, infinities and subnormals included, it stays within C."""
    held, engine = _one_record(clipping_norm, precision)
    held[0] = torch.tensor(record) * scale
    alone = engine.clipped_sum(_batches([0], 1))
    assert torch.isfinite(alone).all()
    assert sum(Fraction(value) ** 2 for value in alone.tolist()) <= clipping_norm**2


@cache
def _one_record(clipping_norm: Fraction, precision: str) -> tuple[Tensor, Engine]:
    """An engine over one record that tests overwrite."""
    torch.manual_seed(5)
    held = torch.zeros(1, 6)
    model = nn.Sequential(nn.Unflatten(1, (3, 2)), nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3), nn.Flatten())
    target = torch.zeros(1, dtype=torch.int64)
    plan = Plan(Fraction(1), Fraction(1), clipping_norm, 1, 1)
    return held, Engine(plan, model, cross_entropy, (held, target), 1, precision=precision)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 3e38])
def test_a_record_that_is_not_finite_gives_zero(plan: Plan, make_model: MakeModel, data: Data, bad: float) -> None:
    """NaN, infinity or overflow in one record: its part is zero, and the others' parts are as without it."""
    inputs = data[0].clone()
    inputs[4] = bad
    engine = Engine(plan, make_model(), cross_entropy, (inputs, data[1]))
    alone = engine.clipped_sum(_batches([4]))
    assert torch.equal(alone, torch.zeros_like(alone))
    batches = _batches([2, 4, 6])
    batches[0].mask[1] = False
    assert torch.equal(engine.clipped_sum(_batches([2, 4, 6])), engine.clipped_sum(batches))


def test_what_fills_a_batch_up_counts_for_nothing(plan: Plan, make_model: MakeModel, data: Data) -> None:
    """The sum over a draw does not depend on how many masked places its microbatches have."""
    engine = Engine(plan, make_model(), cross_entropy, data)
    sums = [engine.clipped_sum(_batches([1, 2, 3, 5, 8], size)) for size in (1, 2, 5, 8, 64)]
    assert all(torch.allclose(total, sums[0], rtol=1e-5, atol=1e-6) for total in sums)
    before = engine.clipped_sum(_batches([1], 4))
    data[0][0] = 1e30
    assert torch.equal(engine.clipped_sum(_batches([1], 4)), before)


def test_a_place_without_a_record_is_drawn_and_adds_nothing(plan: Plan, make_model: MakeModel, data: Data) -> None:
    """Whatever lies there, as in a join without a partner: the sum is that of the others, and a step is a step."""
    present = torch.ones(len(data[0]), dtype=torch.bool)
    present[torch.tensor([2, 5])] = False
    whole = Engine(plan, make_model(), cross_entropy, data).clipped_sum(_batches([1, 3, 8]))
    for absent in (0.0, 1e30, float("nan")):
        data[0][~present] = absent
        engine = Engine(plan, make_model(), cross_entropy, data, present=present)
        assert torch.allclose(engine.clipped_sum(_batches([1, 2, 3, 5, 8])), whole, rtol=1e-6, atol=1e-7)
        assert not engine.clipped_sum(_batches([2, 5])).any()
    with pytest.raises(Malformed, match="present"):
        Engine(plan, make_model(), cross_entropy, data, present=present[1:])


def test_an_empty_draw_releases_noise_and_nothing_else(make_model: MakeModel, data: Data) -> None:
    """At probability 1e-9 nobody enters: the update is the noise stream's normals, scaled."""
    plan = Plan(Fraction(1, 10**9), Fraction(2), Fraction(1, 2), 1, 10)
    model = make_model()
    before = _flat(model)
    Engine(plan, model, cross_entropy, data).step(
        1, torch.optim.SGD(model.parameters(), lr=1.0), CsprngRandomness(bytes(32))
    )
    noise = torch.from_numpy(CsprngRandomness(bytes(32)).stream("noise", 1).normals((len(before),)))
    assert torch.allclose(before - _flat(model), (noise * 2.0 * 0.5 / 10).to(torch.float32), atol=1e-6)
    assert all(value.grad is None for value in model.parameters())


def test_noise_has_the_plans_standard_deviation() -> None:
    """Over 60 steps of 1,000 parameters the noise has deviation σC/E, within 6 standard errors."""
    plan = Plan(Fraction(1, 10**9), Fraction(9, 4), Fraction(3, 10), 60, 7)
    model = nn.Linear(99, 10)
    data = (torch.zeros(3, 99), torch.zeros(3, dtype=torch.int64))
    engine = Engine(plan, model, cross_entropy, data)
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    randomness = CsprngRandomness(bytes(range(32)))
    released = []
    for step in range(1, 61):
        with torch.no_grad():
            for value in model.parameters():
                value.zero_()
        engine.step(step, optimiser, randomness)
        released.append(_flat(model).to(torch.float64))
    values = torch.cat(released)
    expected = 2.25 * 0.3 / 7
    assert abs(float(values.std()) / expected - 1) < 6 / math.sqrt(2 * len(values))
    assert abs(float(values.mean())) < 6 * expected / math.sqrt(len(values))
    one, two = released[0], released[1]
    assert abs(float((one * two).mean())) < 6 * expected**2 / math.sqrt(len(one))


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_an_optimiser_takes_the_step_written_by_hand(
    plan: Plan, make_model: MakeModel, data: Data, randomness: CsprngRandomness, kind: str
) -> None:
    """Two steps of SGD with momentum, or one of Adam, equal the formulas on (sum + noise) / E."""
    model = make_model()
    engine = Engine(plan, model, cross_entropy, data)
    sgd = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    optimiser = sgd if kind == "sgd" else torch.optim.Adam(model.parameters(), lr=0.01)
    replay = CsprngRandomness(bytes(range(32)))
    velocity = torch.zeros(engine.size)
    for step in (1, 2) if kind == "sgd" else (1,):
        before = _flat(model)
        drawn = draw(replay.stream("sampler", step), 40, plan.sampling_probability)
        noise = torch.from_numpy(replay.stream("noise", step).normals((engine.size,)))
        gradient = ((engine.clipped_sum(_batches(drawn.tolist(), 64)) + 1.0 * noise) / 10).to(torch.float32)
        velocity = 0.9 * velocity + gradient
        expected = before - 0.5 * velocity if kind == "sgd" else before - 0.01 * gradient / (gradient.abs() + 1e-8)
        engine.step(step, optimiser, randomness)
        assert torch.allclose(_flat(model), expected, atol=1e-6)


@given(st.fractions(Fraction(1, 10**18), 10**15))
def test_rounding_goes_to_the_safe_side(number: Fraction) -> None:
    """Noise rounds up and the bound down, by less than one float64 each."""
    above, below = float_above(number), float_below(number)
    assert Fraction(below) <= number <= Fraction(above)
    assert above == below or math.nextafter(below, math.inf) == above


def test_bound_and_noise_come_from_the_plans_exact_numbers(make_model: MakeModel, data: Data) -> None:
    """Thirds and sevenths, which no float holds, stay on the safe side of the exact product."""
    plan = Plan(Fraction(1, 2), Fraction(8, 7), Fraction(1, 3), 1, 1)
    for precision, margin in (("float32", Fraction(1, 1 << 10)), ("float64", Fraction(1, 1 << 16))):
        engine = Engine(plan, make_model(), cross_entropy, data, precision=precision)
        assert Fraction(engine.noise_std) >= Fraction(8, 21)
        assert Fraction(1, 3) * (1 - 2 * margin) < Fraction(engine.bound) <= Fraction(1, 3) * (1 - margin)


def test_products_that_round_more_than_the_bound_allows_are_refused(
    plan: Plan, make_model: MakeModel, data: Data
) -> None:
    """Who tells PyTorch to multiply float32 in fewer bits is told why not, before and during a run."""
    engine = Engine(plan, make_model(), cross_entropy, data)
    backend: Any = torch.backends.mkldnn
    try:
        torch.set_float32_matmul_precision("medium")
        with pytest.raises(Malformed, match=r"^precision: needs torch.set_float32_matmul_precision"):
            engine.clipped_sum(_batches([1, 2]))
        with pytest.raises(Malformed, match=r"^precision: needs torch.set_float32_matmul_precision"):
            Engine(plan, make_model(), cross_entropy, data)
        torch.set_float32_matmul_precision("highest")
        backend.conv.fp32_precision = "bf16"
        with pytest.raises(Malformed, match=r"^precision: needs torch\.backends\.mkldnn\.conv"):
            engine.clipped_sum(_batches([1, 2]))
    finally:
        torch.set_float32_matmul_precision("highest")
        backend.conv.fp32_precision = "none"
    assert engine.clipped_sum(_batches([1, 2])).any()


def _flat(model: nn.Module) -> Tensor:
    return torch.cat([value.detach().reshape(-1) for value in model.parameters()]).clone()


@pytest.mark.parametrize(
    ("width", "clipping_norm", "inputs", "target"),
    [
        (9000, Fraction(1), [1.2e27, 1.3e27], 1e18),
        (20, Fraction(1, 1 << 40), [1.0e17, 1.1e17, 1.2e17], 1e16),
        (20, Fraction(1, 10_000), [1e18, 3e18, 5e18, 7e18, 9e18], 1.7e19),
    ],
)
def test_a_weight_that_underflows_is_none(
    width: int, clipping_norm: Fraction, inputs: list[float], target: float
) -> None:
    """A finite gradient so long that its weight would be rounded up by a factor: within C all the same."""
    model = nn.Linear(width, 1, bias=False)
    nn.init.zeros_(model.weight)
    data = torch.zeros(len(inputs), width), torch.full((len(inputs), 1), target)
    data[0][:, 0] = torch.tensor(inputs)
    plan = Plan(Fraction(1, 2), Fraction(1), clipping_norm, 10, 32)
    engine = Engine(plan, model, lambda out, told: ((out - told) ** 2).sum() / 2, data, 8)
    lengths = contributions(engine, np.arange(len(inputs))).norm(dim=1)
    assert float(lengths.max()) <= float(clipping_norm)


def test_a_loop_inside_autocast_computes_as_outside() -> None:
    """The caller's own lower precision reaches neither norms nor sums."""
    public = torch.Generator().manual_seed(5)
    model = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 3))
    data = torch.rand(64, 20, generator=public) * 3, torch.zeros(64, dtype=torch.long)
    engine = Engine(Plan(Fraction(1, 2), Fraction(1), Fraction(1, 10), 10, 32), model, cross_entropy, data, 64)
    batches = engine.microbatches(np.arange(64))
    outside = engine.clipped_sum(batches)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(engine.clipped_sum(batches), outside)


def test_a_record_that_cannot_be_computed_adds_nothing() -> None:
    """A label of no class, or a token of no word: the sum is that of the others."""
    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(8, 3))
    inputs, targets = torch.arange(12).remainder(9).reshape(6, 2), torch.tensor([0, 1, 2, 0, 1, 2])
    plan = Plan(Fraction(1, 2), Fraction(1), Fraction(1), 10, 3)
    whole = Engine(plan, model, cross_entropy, (inputs, targets), 4)
    others = whole.clipped_sum(whole.microbatches(np.array([0, 1, 3, 5])))
    inputs[2, 0], targets[4] = 99, 7
    engine = Engine(plan, model, cross_entropy, (inputs, targets), 4)
    assert torch.allclose(engine.clipped_sum(engine.microbatches(np.arange(6))), others, atol=1e-6)


def test_out_of_memory_is_reported_and_no_record_is_left_out() -> None:
    """With an address space that a microbatch does not fit into: the sum fails, and comes whole when there is room."""
    model = nn.Sequential(nn.Linear(1, 3_000), nn.Tanh(), nn.Flatten(), nn.Linear(30_000, 2))
    data = (torch.rand(4, 1, 1).expand(4, 10, 1), torch.arange(4) % 2)
    plan = Plan(Fraction(1, 2), Fraction(1), Fraction(1), 10, 32)
    engine = Engine(plan, model, cross_entropy, data, 512)
    batches = engine.microbatches(np.arange(4))
    whole = engine.clipped_sum(batches)
    before = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    try:
        resource.setrlimit(resource.RLIMIT_AS, (taken + (1 << 24), before[1]))
        with pytest.raises(MemoryError, match="does not fit into memory"):
            engine.clipped_sum(batches)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert torch.equal(engine.clipped_sum(batches), whole)
