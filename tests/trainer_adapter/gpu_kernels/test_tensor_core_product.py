"""Products of bfloat16: exact but for additions, and what a GPU's tensor cores may make of these is within the bound.

No device is needed: tensor cores are the model of them that was measured, in Python's exact arithmetic.
"""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trainer_adapter.gpu_kernels.tensor_core_product import (
    ACCUMULATION_UNIT,
    WEIGHTED_UNIT,
    full_sums,
    product,
    weighted_product,
)
from trainer_adapter.per_sample.gradient_factors import OuterProductGrad
from trainer_adapter.per_sample.gradient_norms import KERNELS
from trainer_adapter.per_sample.rounding_margins import PRECISIONS

PRECISION = PRECISIONS["bfloat16_products"]
NUMBERS = st.floats(-1e6, 1e6, width=32).filter(lambda one: one == 0 or abs(one) > 1e-6)


def on_tensor_cores(terms: list[Fraction], block: int) -> Fraction:
    """Terms added in blocks: all are cut off where the greatest one's 24 bits end, and so is their sum."""
    total = Fraction(0)
    for start in range(0, len(terms), block):
        together = [total, *terms[start : start + block]]
        total = _cut(sum((_cut(one, max(map(abs, together))) for one in together), Fraction(0)))
    return total


def _cut(number: Fraction, greatest: Fraction | None = None) -> Fraction:
    size = abs(number) if greatest is None else greatest
    if not size:
        return number
    step = Fraction(2) ** (math.frexp(float(size))[1] - 24)
    return math.trunc(number / step) * step


def _rows(values: list[float]) -> Tensor:
    return torch.tensor([values]).to(torch.bfloat16)


@settings(deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=40), st.sampled_from([4, 8, 16]))
def test_sums_of_products_are_within_their_bound(pairs: list[tuple[float, float]], block: int) -> None:
    """Those of the CPU, and those of tensor cores by the model of them."""
    left, right = (_rows(list(side)) for side in zip(*pairs, strict=True))
    terms = [Fraction(one) * Fraction(other) for one, other in zip(left[0].tolist(), right[0].tolist(), strict=True)]
    exact, most = sum(terms), Fraction(len(pairs) * ACCUMULATION_UNIT) * sum(map(abs, terms))
    found = product(left, right.T)
    assert found.dtype == torch.float32
    assert abs(Fraction(found.item()) - exact) <= most
    assert abs(on_tensor_cores(terms, block) - exact) <= most


@given(st.lists(NUMBERS, min_size=1, max_size=40))
def test_a_weighted_number_is_a_sum_of_two(values: list[float]) -> None:
    """Each is off by 2^-16 of itself at most, whatever it is; times one nothing is added up."""
    left = torch.tensor(values)[:, None]
    found = weighted_product(left, torch.ones((1, 1), dtype=torch.bfloat16))
    for one, other in zip(left.flatten().tolist(), found.flatten().tolist(), strict=True):
        assert abs(Fraction(one) - Fraction(other)) <= Fraction(WEIGHTED_UNIT) * abs(Fraction(one))


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    positions=st.integers(1, 150),
    weight=st.floats(2**-20, 1, width=32),
    kernel=st.sampled_from(["ghost", "dense_product"]),
    cancel=st.booleans(),
)
def test_what_tensor_cores_add_to_the_sum_is_within_the_norm(
    seed: int,
    positions: int,
    weight: float,
    kernel: str,
    cancel: bool,  # noqa: FBT001 - Hypothesis names it
) -> None:
    """One record's weighted gradient as tensor cores would sum it, in exact arithmetic: never longer than its norm."""
    public = torch.Generator().manual_seed(seed)
    left, right = (torch.randn((1, positions, size), generator=public) for size in (2, 3))
    if cancel:
        left, right = torch.cat([left, -left], dim=1), torch.cat([right, right * (1 + 2.0**-7)], dim=1)
    factor = OuterProductGrad(left.to(torch.bfloat16), right.to(torch.bfloat16))
    norms, _ = KERNELS[kernel]([factor], PRECISION)
    scaled = factor.left[0] * torch.tensor([[weight]])
    high = scaled.to(torch.bfloat16)
    low = (scaled - high.to(torch.float32)).to(torch.bfloat16)
    square = Fraction(0)
    for row in range(2):
        for column in range(3):
            parts = [
                [
                    Fraction(a) * Fraction(b)
                    for a, b in zip(part[:, row].tolist(), factor.right[0, :, column].tolist(), strict=True)
                ]
                for part in (high, low)
            ]
            blocks = range(0, len(parts[0]), 128)
            entered = [on_tensor_cores(part[start : start + 128], 8) for start in blocks for part in parts]
            square += Fraction(float(torch.tensor([float(one) for one in entered]).cumsum(0)[-1])) ** 2
    most = float(norms[0].sqrt()) * weight * (1 + 2.0**-10)
    assert math.sqrt(square) <= most


def test_pytorch_has_the_product_that_a_gpu_is_given() -> None:
    """Of matrices and of batches, with a result in float32; values are the device's, and there are none here."""
    left, right = (torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in ((2, 4, 8), (2, 8, 3)))
    for multiply, one, other in ((torch.bmm, left, right), (torch.mm, left[0], right[0])):
        found = multiply(one, other, out_dtype=torch.float32)
        assert (found.dtype, found.shape[-2:]) == (torch.float32, (4, 3))
    with pytest.raises(NotImplementedError, match="CPU"):
        torch.mm(
            torch.ones((1, 1), dtype=torch.bfloat16), torch.ones((1, 1), dtype=torch.bfloat16), out_dtype=torch.float32
        )


def test_parts_of_a_product_are_not_added_up_in_bfloat16() -> None:
    """PyTorch's setting for cuBLAS is off within, and as it was afterwards."""
    settings_of = torch.backends.cuda.matmul
    before = settings_of.allow_bf16_reduced_precision_reduction
    with full_sums():
        assert settings_of.allow_bf16_reduced_precision_reduction is False
    assert settings_of.allow_bf16_reduced_precision_reduction == before
