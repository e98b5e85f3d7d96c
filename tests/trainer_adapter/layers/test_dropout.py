"""What drops, and how what stays is scaled: as PyTorch's own layers, by masks that belong to one record."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
import torch
from scipy.stats import binomtest, chi2_contingency, chisquare
from torch import Tensor
from torch.func import vmap
from torch.nn import functional

from tests.trainer_adapter.reference_dropout import kept
from trainer_adapter.layers.dropout import PerExampleDropout, dropout_keys

CHANCE: Final = 1e-6
"""How unlikely what is seen must be before a test fails; seeds are fixed, so it fails always or never."""

KINDS: Final[dict[str, tuple[Callable[..., Tensor], tuple[int, ...]]]] = {
    "dropout": (functional.dropout, (1, 40, 50)),
    "dropout1d": (functional.dropout1d, (1, 400, 5)),
    "dropout2d": (functional.dropout2d, (1, 400, 2, 3)),
    "dropout3d": (functional.dropout3d, (1, 400, 2, 2, 2)),
    "alpha_dropout": (functional.alpha_dropout, (1, 40, 50)),
    "feature_alpha_dropout": (functional.feature_alpha_dropout, (1, 400, 2, 3)),
    "torch.dropout": (torch.dropout, (1, 40, 50)),
}


def _key(word: int) -> Tensor:
    return dropout_keys(np.array([word], dtype=np.uint64), torch.tensor([0]), torch.tensor([True]))[0]


def _mask(word: int, p: float, count: int, calls: int = 1) -> Tensor:
    """Which of so many places drop, shape (calls, count)."""
    with PerExampleDropout(_key(word)):
        return torch.stack([functional.dropout(torch.ones(1, count), p)[0] == 0 for _ in range(calls)])


@pytest.mark.parametrize("p", [0.25, 0.5, 0.875])
@pytest.mark.parametrize("name", KINDS)
def test_each_function_drops_as_pytorchs_own(name: str, p: float) -> None:
    """The same two values come out of ones as from PyTorch's own generator, and the same places share one mask."""
    function, shape = KINDS[name]
    torch.manual_seed(1)
    theirs = function(torch.ones(shape), p, True)  # noqa: FBT003 - PyTorch names it in two ways
    with PerExampleDropout(_key(77)) as dropping:
        ours = function(torch.ones(shape), p, True)  # noqa: FBT003 - PyTorch names it in two ways
    assert dropping.calls == 1
    values = [sorted(set(found.flatten().tolist())) for found in (ours, theirs)]
    assert len(values[1]) == 2
    assert values[0] == pytest.approx(values[1], abs=1e-6)
    one_mask = [(found.flatten(2) == found.flatten(2)[..., :1]).all() for found in (ours, theirs)]
    assert one_mask[0] == one_mask[1]
    assert one_mask[0] == (name not in {"dropout", "alpha_dropout", "torch.dropout"})


@pytest.mark.parametrize("name", ["dropout", "dropout2d", "alpha_dropout", "feature_alpha_dropout"])
def test_in_place_is_where_the_input_lies(name: str) -> None:
    """The input itself becomes what the other way gives, and is given back."""
    function, shape = KINDS[name]
    value = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    with PerExampleDropout(_key(5)):
        apart = function(value, 0.5, training=True)
    with PerExampleDropout(_key(5)):
        given = function(value, 0.5, training=True, inplace=True)
    assert given is value
    assert torch.equal(given, apart)


@pytest.mark.parametrize(("p", "shape"), [(0.1, (1, 37)), (0.5, (1, 3, 8)), (0.9, (2, 1, 5))])
def test_a_mask_is_the_one_worked_out_in_plain_integers(p: float, shape: tuple[int, ...]) -> None:
    """Place by place, for several calls in a row, and what stays is divided by exactly the share that stays."""
    word = 0xFEDCBA9876543210
    value = torch.randn(shape, generator=torch.Generator().manual_seed(2))
    scale = 1 / (1 - round(p * 65536) / 65536)
    with PerExampleDropout(_key(word)):
        found = [functional.dropout(value, p) for _ in range(3)]
    for call, one in enumerate(found):
        assert torch.equal(one, torch.where(kept(word, call, shape, p), value * scale, 0.0))


def test_ends_of_the_range() -> None:
    """Probability 0, or none in training, draws nothing and gives the input itself; 1 leaves nothing; else refused."""
    value = torch.ones(1, 100_000)
    with PerExampleDropout(_key(3)) as dropping:
        assert functional.dropout(value, 0.0) is value
        assert functional.dropout(value, 0.5, training=False) is value
        assert functional.feature_alpha_dropout(value, 0.5, training=False) is value
        assert functional.dropout(value, 1.0).count_nonzero() == 0
        assert functional.dropout(value, 1e-6) is value
        assert dropping.calls == 0
        assert torch.isfinite(functional.dropout(value, 1 - 1e-9)).all()
        for p in (-0.1, 1.1, math.nan):
            with pytest.raises(ValueError, match="has to be between 0 and 1"):
                torch.dropout(value, p, train=True)
        with pytest.raises(ValueError, match="dimension of channels"):
            torch.feature_dropout(torch.ones(5), 0.5, train=True)


@pytest.mark.parametrize("p", [0.1, 0.25, 0.5, 0.8])
def test_as_many_drop_as_should(p: float) -> None:
    """Of 400,000 places of one record, and of one place of 20,000 records, within exact binomial bounds."""
    one = int(_mask(12345, p, 400_000).sum())
    assert binomtest(one, 400_000, p).pvalue > CHANCE
    words = np.random.default_rng(1).integers(0, 2**64, 20_000, dtype=np.uint64)
    keys = dropout_keys(words, torch.arange(20_000), torch.ones(20_000, dtype=torch.bool))

    def first(key: Tensor) -> Tensor:
        with PerExampleDropout(key):
            return functional.dropout(torch.ones(1, 9), p)[0, 7] == 0

    many = int(vmap(first)(keys).sum())
    assert binomtest(many, 20_000, p).pvalue > CHANCE


def test_masks_do_not_know_of_each_other() -> None:
    """Chi-square: of neighbouring places, calls, records whose keys differ in one bit, and parts of a block."""
    count, p = 160_000, 0.3
    first, second = _mask(0, p, count, calls=2)
    pairs = {
        "place": (first[:-1], first[1:]),
        "call": (first, second),
        "lower bit": (first, _mask(1, p, count)[0]),
        "upper bit": (first, _mask(1 << 63, p, count)[0]),
        **{f"part {part}": (first[: count // 8], first[part * count // 8 :][: count // 8]) for part in range(1, 8)},
    }
    for name, (one, other) in pairs.items():
        table = torch.bincount(2 * one.long() + other.long(), minlength=4).reshape(2, 2)
        assert chi2_contingency(table.numpy()).pvalue > CHANCE, name
    eights = first.reshape(-1, 8).sum(dim=1).bincount(minlength=9).numpy()
    expected = [math.comb(8, k) * p**k * (1 - p) ** (8 - k) * count / 8 for k in range(9)]
    assert chisquare([*eights[:6], eights[6:].sum()], [*expected[:6], sum(expected[6:])]).pvalue > CHANCE


def _heads(positions: int, heads: int = 2) -> Tensor:
    return torch.randn(1, heads, positions, 4, generator=torch.Generator().manual_seed(positions + heads))


_ATTENDED: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "scaled": {"scale": 0.3},
    "masked": {"attn_mask": torch.ones(5, 5, dtype=torch.bool).tril()},
    "biased": {"attn_mask": torch.linspace(-2, 2, 25).reshape(5, 5)},
    "grouped": {"enable_gqa": True},
}


@pytest.mark.parametrize("name", _ATTENDED)
def test_attention_drops_weights_after_their_softmax(name: str) -> None:
    """Attention written out, weights times a mask by hand; and without dropout PyTorch's own fused way."""
    options = _ATTENDED[name]
    query, key, value = _heads(5, 4 if name == "grouped" else 2), _heads(5), _heads(5) + 1
    with PerExampleDropout(_key(9)):
        found = functional.scaled_dot_product_attention(query, key, value, dropout_p=0.4, **options)
        none = functional.scaled_dot_product_attention(query, key, value, dropout_p=1.0, **options)
        whole = functional.scaled_dot_product_attention(query, key, value, **options)
    assert torch.equal(whole, functional.scaled_dot_product_attention(query, key, value, **options))
    assert none.count_nonzero() == 0
    if name == "grouped":
        key, value = (part.repeat_interleave(2, dim=1) for part in (key, value))
    scores = query @ key.mT * options.get("scale", 0.5)
    bias = options.get("attn_mask")
    if name in {"causal", "masked"}:
        scores = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf)
    elif bias is not None:
        scores = scores + bias
    mask = kept(9, 0, tuple(scores.shape), 0.4) / (1 - round(0.4 * 65536) / 65536)
    assert torch.allclose(found, (scores.softmax(dim=-1) * mask) @ value, atol=1e-6)
