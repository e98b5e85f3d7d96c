"""Each way to take a norm and a sum, against gradients multiplied out in float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trainer_adapter.per_sample.autotune import candidates, choose
from trainer_adapter.per_sample.gradient_factors import (
    ConvGrad,
    DenseGrad,
    EmbeddingGrad,
    NextTokenGrad,
    OuterProductGrad,
    PerExampleGrad,
)
from trainer_adapter.per_sample.gradient_norms import KERNELS
from trainer_adapter.per_sample.rounding_margins import PRECISIONS
from trainer_adapter.per_sample.tensor_norms import ROW_MAX, squares

SINGLE, DOUBLE = PRECISIONS["float32"], PRECISIONS["float64"]
PLAIN = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}


@st.composite
def _outers(draw: st.DrawFn) -> tuple[list[PerExampleGrad], tuple[int, ...]]:
    """One or two uses of one matrix as a linear layer's weight."""
    seed, units, tall, wide = (draw(st.integers(1, most)) for most in (10**6, 4, 6, 6))
    generator = torch.Generator().manual_seed(seed)
    lengths = draw(st.lists(st.integers(1, 7), min_size=1, max_size=2))
    return [
        OuterProductGrad(
            torch.randn((units, length, tall), generator=generator),
            torch.randn((units, length, wide), generator=generator),
        )
        for length in lengths
    ], (tall, wide)


@st.composite
def _tables(draw: st.DrawFn) -> tuple[list[PerExampleGrad], tuple[int, ...]]:
    """A table looked up once or twice, and, or not, used as a linear layer's weight too."""
    seed, units, height, wide = (draw(st.integers(1, most)) for most in (10**6, 4, 6, 5))
    generator = torch.Generator().manual_seed(seed)
    lengths = draw(st.lists(st.integers(1, 7), min_size=1, max_size=2))
    found: list[PerExampleGrad] = [
        EmbeddingGrad(
            torch.randint(height, (units, length), generator=generator),
            torch.randn((units, length, wide), generator=generator),
            height,
        )
        for length in lengths
    ]
    if draw(st.booleans()):
        left = torch.randn((units, 3, height), generator=generator)
        found.append(OuterProductGrad(left, torch.randn((units, 3, wide), generator=generator)))
    return found, (height, wide)


@st.composite
def _convolutions(draw: st.DrawFn) -> tuple[list[PerExampleGrad], tuple[int, ...]]:
    """A convolution in one, two or three dimensions, of several images for a unit, or of one."""
    dims = draw(st.integers(1, 3))
    groups, ins, outs, units, images = (draw(st.integers(1, most)) for most in (2, 2, 2, 3, 2))
    window, stride, dilation = (tuple(draw(st.integers(1, 2)) for _ in range(dims)) for _ in range(3))
    padding = tuple(draw(st.integers(0, 2)) for _ in range(dims))
    space = [draw(st.integers(3, 5)) for _ in range(dims)]
    generator = torch.Generator().manual_seed(draw(st.integers(1, 10**6)))
    inputs = torch.randn((units, images, groups * ins, *space), generator=generator)
    kernel = (groups * outs, ins, *window)
    output = PLAIN[dims](inputs.flatten(0, 1), torch.randn(kernel), None, stride, padding, dilation, groups)
    grad = torch.randn(output.shape, generator=generator).unflatten(0, (units, images))
    return [ConvGrad(inputs, grad, kernel, stride, padding, dilation, groups)], kernel


def _multiplied_out(factors: list[PerExampleGrad]) -> Tensor:
    """The gradients in float64, from definitions: loops for a table, autograd for a convolution."""
    total: Tensor | None = None
    for factor in factors:
        if isinstance(factor, OuterProductGrad):
            value = torch.einsum("utp,utd->upd", factor.left.double(), factor.right.double())
        elif isinstance(factor, EmbeddingGrad):
            value = torch.zeros((len(factor.right), factor.height, factor.right.shape[2]), dtype=torch.float64)
            for unit, places in enumerate(factor.places.tolist()):
                for position, place in enumerate(places):
                    value[unit, place] += factor.right[unit, position].double()
        else:
            assert isinstance(factor, ConvGrad)
            value = torch.stack([_convolved(factor, unit) for unit in range(len(factor.grad))])
        total = value if total is None else total + value
    assert total is not None
    return total


def _without_cancelling(factors: list[PerExampleGrad]) -> Tensor:
    """What squared norms could be at most, if no two terms had opposite signs."""
    total = torch.zeros(())
    for factor in factors:
        if isinstance(factor, OuterProductGrad):
            value = torch.einsum("utp,utd->upd", factor.left.abs(), factor.right.abs()).flatten(1)
        elif isinstance(factor, EmbeddingGrad):
            value = factor.right.abs().sum(dim=1) * factor.height
        else:
            assert isinstance(factor, ConvGrad)
            window = torch.Size(factor.kernel[2:]).numel()
            value = factor.grad.flatten(1).norm(dim=1)[:, None] * factor.inputs.flatten(1).norm(dim=1)[:, None] * window
        total = total + value.square().sum(dim=1).sqrt()
    return total.square()


def _margin(factors: list[PerExampleGrad]) -> Tensor:
    """What a bound may lie above the truth: rounding of as many sums as there are positions, twice over.

    Beside a table the share of each square counts before the squares cancel against what is crossed.
    """
    positions = 0
    for factor in factors:
        assert isinstance(factor, OuterProductGrad | EmbeddingGrad | ConvGrad)
        positions += factor.grad[0, :, 0].numel() if isinstance(factor, ConvGrad) else factor.right.shape[1]
    return ((positions + 16) * 2**-20 + 2**-10) * _without_cancelling(factors)


def _convolved(factor: ConvGrad, unit: int) -> Tensor:
    weight = torch.zeros(factor.kernel, dtype=torch.float64, requires_grad=True)
    inputs = factor.inputs[unit].double()
    plain = PLAIN[len(factor.stride)]
    output = plain(inputs, weight, None, factor.stride, factor.padding, factor.dilation, factor.groups)
    (gradient,) = torch.autograd.grad(output, weight, factor.grad[unit].double())
    return gradient


@settings(deadline=None, max_examples=80)
@given(st.one_of(_outers(), _tables(), _convolutions()))
def test_every_way_tells_the_same(given_factors: tuple[list[PerExampleGrad], tuple[int, ...]]) -> None:
    """A bound just above the true square, and the weighted sum; one unit's weight zero leaves it out."""
    factors, shape = given_factors
    truth = _multiplied_out(factors)
    size = torch.Size(shape).numel()
    lengths = truth.flatten(1).square().sum(dim=1)
    weights = torch.linspace(0, 1, len(truth))
    expected = torch.einsum("u,us->s", weights.double(), truth.flatten(1)).reshape(shape)
    names = set(candidates(factors, size, SINGLE)) | {"dense"}
    if {type(factor) for factor in factors} == {OuterProductGrad}:
        names |= {"ghost"}
    if any(isinstance(factor, OuterProductGrad) for factor in factors):
        names |= {"dense_product"}
    if isinstance(factors[0], ConvGrad):
        names |= {"conv_backward"}
    for name in names:
        norms, summed = KERNELS[name](factors, SINGLE)
        assert (norms * (1 + 2**-10) >= lengths).all(), name
        assert (norms <= lengths + _margin(factors)).all(), name
        found = summed(weights)
        assert found.shape == shape
        assert torch.allclose(found.double(), expected, rtol=1e-4, atol=1e-4), name


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e38])
@pytest.mark.parametrize("name", sorted(KERNELS))
def test_what_is_not_finite_is_seen_and_left_out(name: str, bad: float) -> None:
    """The unit's norm is not finite (or, for what is only large, not small), and a weight of zero removes it whole."""
    left, right = torch.ones(2, 3, 4), torch.ones(2, 3, 5)
    right[1, 2, 0] = bad
    factor: PerExampleGrad = OuterProductGrad(left, right)
    if name == "embedding_rows":
        factor = EmbeddingGrad(torch.zeros((2, 3), dtype=torch.int64), right, 4)
    if name in {"unfolded_conv", "grouped_conv", "conv_backward"}:
        inputs = torch.ones(2, 1, 1, 6)
        inputs[1, 0, 0, 2] = bad
        factor = ConvGrad(inputs, torch.ones(2, 1, 1, 5), (1, 1, 2), (1,), (0,), (1,), 1)
    if name == "next_token":
        targets = torch.zeros(2, 3, dtype=torch.int64)
        factor = NextTokenGrad(right, torch.ones(2, 3), torch.ones(2, 3) * 9, targets, torch.ones(4, 5), 3)
    norms, summed = KERNELS[name]([factor], SINGLE)
    assert torch.isfinite(norms[0])
    assert not norms[1] <= 1e37
    total = summed(torch.tensor([1.0, 0.0]))
    assert torch.isfinite(total).all()


@pytest.mark.parametrize("scale", [2.0**-70, 2.0**-100, 2.0**-140])
def test_what_underflows_is_counted(scale: float) -> None:
    """Tiny on one side, huge on the other: squares underflow in float32, the gradient does not."""
    for length in (1, 4):
        left = torch.full((1, length, 3), scale)
        right = torch.full((1, length, 2), 1e18)
        truth = torch.einsum("utp,utd->upd", left.double(), right.double()).square().sum()
        norms, _ = KERNELS["ghost"]([OuterProductGrad(left, right)], SINGLE)
        assert norms[0] * (1 + 2**-10) >= truth


@pytest.mark.parametrize("name", ["ghost", "dense_product"])
def test_cancelling_positions_are_bounded_by_their_rounding(name: str) -> None:
    """Positions that cancel to nearly nothing: what rounding leaves in the product is within the bound told."""
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        left, right = torch.randn((2, 1, 32, 16), generator=generator)
        outer = OuterProductGrad(torch.cat([left, -left], dim=1), torch.cat([right, right * (1 + 2**-20)], dim=1))
        norms, summed = KERNELS[name]([outer], SINGLE)
        assert summed(torch.ones(1)).double().square().sum() <= norms[0] * (1 + 2**-10)


@pytest.mark.parametrize("length", [ROW_MAX, ROW_MAX + 1, 70_000])
def test_long_rows_are_summed_exactly_enough(length: int) -> None:
    """A square is off by less than the margin allows, however long the row."""
    value = torch.rand((2, length), generator=torch.Generator().manual_seed(1))
    found = squares(value, SINGLE)
    truth = value.double().square().sum(dim=1)
    assert (abs(found / truth - 1) < 2**-12).all()


def test_a_choice_is_made_once() -> None:
    """What was measured stands for the process, so that two runs of one model round alike."""
    factors: list[PerExampleGrad] = [OuterProductGrad(torch.rand(3, 40, 30), torch.rand(3, 40, 20))]
    first = choose(factors, 600, SINGLE)
    assert first in {"ghost", "dense"}
    assert {choose(factors, 600, SINGLE) for _ in range(5)} == {first}
    assert choose([DenseGrad(torch.rand(3, 4))], 4, SINGLE) == "dense"


def test_float64_takes_only_ways_that_cannot_cancel() -> None:
    """Its proof covers sums over records because no record's terms cancel within one."""
    outer = OuterProductGrad(torch.rand(3, 4, 5), torch.rand(3, 4, 6))
    assert candidates([outer], 30, DOUBLE) == ("dense",)
    assert candidates([OuterProductGrad(outer.left[:, :1], outer.right[:, :1])], 30, DOUBLE) == ("ghost",)
    rows = EmbeddingGrad(torch.zeros((3, 4), dtype=torch.int64), outer.right, 9)
    assert candidates([outer, rows], 54, DOUBLE) == ("dense",)
