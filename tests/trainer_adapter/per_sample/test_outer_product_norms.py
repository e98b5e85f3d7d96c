"""Norms of language models' heads: never below what enters the sum, and no more than 1 % above it at real sizes."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd import engine
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.per_sample import autotune
from trainer_adapter.per_sample.autotune import candidates, margin_of
from trainer_adapter.per_sample.gradient_factors import EmbeddingGrad, OuterProductGrad, PerExampleGrad, rounded
from trainer_adapter.per_sample.gradient_norms import KERNELS
from trainer_adapter.per_sample.rounding_margins import PRECISIONS

SINGLE: Final = PRECISIONS["float32"]
TENSOR_CORES: Final = PRECISIONS["bfloat16_products"]
PLAN: Final = Plan(Fraction(1, 2), Fraction(1), Fraction(1, 100), 10, 4)
SHARE: Final = 1 + 2**-10
"""What the precision's margin covers: see ``tensor_norms``."""


def _head(words: int, length: int, width: int, seed: int = 1) -> OuterProductGrad:
    """A language model's head under cross-entropy on random next words, one record."""
    public = torch.Generator().manual_seed(seed)
    scores = torch.softmax(torch.randn((1, length, words), generator=public), dim=2)
    truth = torch.randint(words, (1, length, 1), generator=public)
    left = scores.scatter_add(2, truth, -torch.ones(truth.shape)) / length
    return OuterProductGrad(left, torch.randn((1, length, width), generator=public))


def _table(words: int, length: int, width: int, scale: float) -> EmbeddingGrad:
    public = torch.Generator().manual_seed(2)
    places = torch.randint(words, (1, length), generator=public)
    return EmbeddingGrad(places, torch.randn((1, length, width), generator=public) * scale, words)


def _exact(factors: list[PerExampleGrad]) -> Tensor:
    """The gradient of the only unit, in float64."""
    total = torch.zeros((), dtype=torch.float64)
    for factor in factors:
        if isinstance(factor, OuterProductGrad):
            total = total + factor.left[0].double().T @ factor.right[0].double()
        else:
            assert isinstance(factor, EmbeddingGrad)
            rows = torch.zeros((factor.height, factor.right.shape[2]), dtype=torch.float64)
            total = total + rows.index_add(0, factor.places[0], factor.right[0].double())
    return total


# Gradients of the head are small and its inputs large, those of a table the other way round, or as large as the head's.
@pytest.mark.parametrize("scale", [None, 1e-3, 1.0])
@pytest.mark.parametrize("kernel", ["ghost", "dense_product"])
def test_a_head_of_8000_words_keeps_its_norm(kernel: str, scale: float | None) -> None:
    """Alone, or tied to the embedding: what enters the sum is at most what is told, which is 0.4 % above it at most."""
    factors: list[PerExampleGrad] = [_head(8_000, 256, 128)]
    if scale is not None:
        factors.append(_table(8_000, 256, 128, scale))
    norms, summed = KERNELS[kernel](factors, SINGLE)
    true, entered = _exact(factors).norm(), summed(torch.ones(1)).double().norm()
    assert max(true, entered) <= norms[0].sqrt() * SHARE
    assert norms[0].sqrt() <= true * 1.004
    assert margin_of(kernel, factors, SINGLE) < 0.004


@st.composite
def _cancelling(draw: st.DrawFn) -> list[PerExampleGrad]:
    """Positions that nearly cancel, sizes many powers of two apart, a table that takes away what the products gave."""
    public = torch.Generator().manual_seed(draw(st.integers(1, 10**6)))
    length, tall, wide = draw(st.integers(1, 40)), draw(st.integers(1, 90)), draw(st.integers(1, 90))
    left, right = torch.randn((1, length, tall), generator=public), torch.randn((1, length, wide), generator=public)
    left = left * torch.exp2(torch.randint(-20, 20, (1, length, 1), generator=public) * draw(st.sampled_from([0, 1])))
    if draw(st.booleans()):
        off = 1 + 2.0 ** -draw(st.integers(8, 24))
        left, right = torch.cat([left, -left], dim=1), torch.cat([right, right * off], dim=1)
    found: list[PerExampleGrad] = [OuterProductGrad(left, right)]
    if draw(st.booleans()):
        whole = left[0].double().T @ right[0].double()
        rows = torch.randint(tall, (1, draw(st.integers(1, 30))), generator=public)
        found.append(EmbeddingGrad(rows, -whole[rows[0]].float()[None] * draw(st.sampled_from([0.0, 0.5, 1.0])), tall))
    return found


@settings(deadline=None, max_examples=120)
@given(
    _cancelling(),
    st.sampled_from(["ghost", "dense_product"]),
    st.floats(2**-20, 1),
    st.sampled_from(["float32", "bfloat16_products"]),
)
def test_what_enters_is_never_longer_than_told(
    factors: list[PerExampleGrad], kernel: str, weight: float, precision: str
) -> None:
    """However positions cancel: the weighted product's own rounding is within the norm, and so is the true gradient."""
    factors = [rounded(factor, PRECISIONS[precision].product) for factor in factors]
    norms, summed = KERNELS[kernel](factors, PRECISIONS[precision])
    entered = summed(torch.tensor([weight])).double().norm()
    assert entered <= float(np.float32(weight)) * norms[0].sqrt() * SHARE
    # Where a place occurs twice its row is added up first, which rounds as any record's own gradient does.
    tables = [factor for factor in factors if isinstance(factor, EmbeddingGrad)]
    once = [factor for factor in factors if isinstance(factor, OuterProductGrad)] + [one.once() for one in tables]
    assert _exact(list(once)).norm() <= norms[0].sqrt() * SHARE


def test_inner_products_that_overflow_leave_no_record_in_the_sum() -> None:
    """Opposite positions as long as float32 can say: inner products overflow, now and then, where squares do not."""
    public, most = torch.Generator().manual_seed(1), float(torch.finfo(torch.float32).max)
    for length, wide in ((5, 33), (5, 65), (9, 65)) * 100:
        way = torch.nn.functional.normalize(torch.randn((8, 1, wide), generator=public, dtype=torch.float64), dim=2)
        turned = torch.tensor([(-1.0) ** place for place in range(length)], dtype=torch.float64)[:, None]
        off = 1 + (torch.rand((8, 1, 1), generator=public, dtype=torch.float64) - 0.5) * 4e-7
        left, right = torch.rand((8, length, 3), generator=public) * 1e-3, (way * turned * most**0.5 * off).float()
        norms, _ = KERNELS["ghost"]([OuterProductGrad(left, right)], SINGLE)
        true = (left.double().transpose(1, 2) @ right.double()).flatten(1).norm(dim=1)
        assert not (true > norms.sqrt() * SHARE).any()


def test_long_records_are_summed_in_blocks() -> None:
    """At 1,500 positions both kernels go through several blocks, pieces of rows too, and tell the same."""
    factors: list[PerExampleGrad] = [_head(700, 1_500, 150)]
    true = _exact(factors)
    for kernel in ("ghost", "dense_product"):
        norms, summed = KERNELS[kernel](factors, SINGLE)
        assert true.norm() <= norms[0].sqrt() * SHARE <= true.norm() * 1.01
        assert (summed(torch.ones(1)).double() - true).norm() <= 1e-5 * true.norm()


def test_the_kernel_is_chosen_by_its_margin_first() -> None:
    """At 1,024 positions of a real head ghost norms would cost 0.9 %: multiplied out in pieces, 0.2 %."""
    left, right = torch.zeros(1).expand(2, 1_024, 50_257), torch.zeros(1).expand(2, 1_024, 768)
    head: list[PerExampleGrad] = [OuterProductGrad(left, right)]
    assert candidates(head, 50_257 * 768, SINGLE) == ("dense_product",)
    assert margin_of("dense_product", head, SINGLE) < 0.002
    assert margin_of("ghost", head, SINGLE) > 0.008
    short: list[PerExampleGrad] = [OuterProductGrad(left[:, :128], right[:, :128])]
    assert candidates(short, 50_257 * 768, SINGLE) == ("ghost", "dense_product")


def test_products_of_bfloat16_keep_their_norm_at_real_shapes() -> None:
    """At 1,024 positions of a real head 0.4 % are lost, at 16,384 more than a hundredth: refused."""
    left, right = torch.zeros(1).expand(2, 1_024, 50_257), torch.zeros(1).expand(2, 1_024, 768)
    head: list[PerExampleGrad] = [OuterProductGrad(left, right)]
    assert candidates(head, 50_257 * 768, TENSOR_CORES) == ("dense_product",)
    assert 0.002 < margin_of("dense_product", head, TENSOR_CORES) < 0.004
    long: list[PerExampleGrad] = [OuterProductGrad(left.repeat(1, 16, 1)[..., :8], right.repeat(1, 16, 1)[..., :8])]
    assert margin_of("dense_product", long, TENSOR_CORES) > engine.MARGIN_MAX


class LanguageModel(nn.Module):
    """Words, a norm, and a head: the same weight as the words', or one of its own."""

    def __init__(self, words: int, width: int, *, tied: bool) -> None:
        super().__init__()
        self.words, self.norm = nn.Embedding(words, width), nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        nn.init.normal_(self.words.weight, std=0.02)
        if tied:
            self.head.weight = self.words.weight

    def forward(self, words: Tensor) -> Tensor:
        """Shape (records, length, words)."""
        scores: Tensor = self.head(self.norm(self.words(words)))
        return scores


def next_word(scores: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy over positions."""
    return cross_entropy(scores.flatten(0, -2), targets.flatten())


def _kept(words: int, length: int, width: int, microbatch: int, *, tied: bool) -> tuple[float, float, Engine]:
    """The norm of one clipped record over C, at least and at most over three of them."""
    torch.manual_seed(5)
    tokens = torch.randint(words, (microbatch, length))
    data = (tokens, tokens.roll(-1, dims=1))
    made = Engine(PLAN, LanguageModel(words, width, tied=tied), next_word, data, microbatch)
    lengths = []
    for record in range(min(3, microbatch)):
        (batch,) = made.microbatches(np.array([record]))
        lengths.append(float(made.clipped_sum([batch]).norm()) / float(PLAN.clipping_norm))
    return min(lengths), max(lengths), made


def test_a_language_model_of_8000_words_with_a_tied_head_trains() -> None:
    """Accepted, and a clipped record adds at least 0.99 C and never more than C."""
    least, most, made = _kept(8_000, 64, 128, 17, tied=True)
    assert 0.99 < least <= most <= 1
    assert made.margin < 0.005


@pytest.mark.soak
@pytest.mark.parametrize("tied", [True, False])
def test_one_layer_of_a_real_vocabulary_trains(tied: bool) -> None:  # noqa: FBT001 - as above
    """50,257 words, 1,024 positions, width 768."""
    least, most, made = _kept(50_257, 1_024, 768, 1, tied=tied)
    assert 0.99 < least <= most <= 1
    assert made.margin < 0.01


def test_long_records_are_refused_in_products_of_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,240 positions, where gradients are too large to be kept: more than 1 % would be lost, and float32 is not."""
    monkeypatch.setattr(autotune, "KEPT_BYTES_MAX", 0)
    model, data = nn.Linear(2, 3), (torch.rand(2, 10_240, 2), torch.zeros(2, 10_240, dtype=torch.int64))
    assert Engine(PLAN, model, next_word, data, 1, precision="float32").margin < 0.01
    with pytest.raises(Malformed, match=r"^model: would lose [1-9].*% of each gradient to the margin for rounding"):
        Engine(PLAN, model, next_word, data, 1, precision="bfloat16_products")


def test_a_margin_above_the_limit_is_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where more would be lost than the limit says, at set-up, with what to do."""
    model, data = nn.Linear(2_048, 2_049), (torch.rand(4, 2, 2_048), torch.zeros(4, 2, dtype=torch.int64))
    assert 0 < Engine(PLAN, model, next_word, data, 5).margin < 1e-3
    monkeypatch.setattr(engine, "MARGIN_MAX", 1e-7)
    with pytest.raises(
        Malformed, match=r"^model: would lose .*% of each gradient to the margin for rounding, 0% at most"
    ):
        Engine(PLAN, model, next_word, data, 5)
