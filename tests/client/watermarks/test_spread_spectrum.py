"""The mark in weights: found where it is, after what weights go through, and nowhere else."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import norm

from client.watermarks.spread_spectrum import (
    AMPLITUDE_MAX,
    MARKED_MIN,
    STRENGTH,
    VALUES_MIN,
    amplitude,
    fingerprint,
    marked,
    score,
    search,
    signs,
    threshold,
)
from ledger.wire.malformed import Malformed

Model = dict[str, NDArray[np.float32]]
KEY = bytes(range(32))
SHAPES = {"one": (128, 400), "two": (128, 128), "three": (10, 128), "bias": (128,)}


def key_of(number: int) -> bytes:
    """A key that no other number has."""
    return hashlib.sha256(b"%d" % number).digest()


def model_of(seed: int) -> Model:
    """Weights as layers have them: normal ones, each tensor with a scale of its own."""
    draw = np.random.default_rng(seed)
    return {name: (draw.normal(size=shape) / 7).astype(np.float32) for name, shape in SHAPES.items()}


def with_mark(model: Model, key: bytes = KEY) -> Model:
    """The whole model, marked."""
    return {**model, **marked(model, key)}


def found(model: Model, keys: int = 1_000) -> list[str]:
    """Which of many keys are found in it, the first of which is :data:`KEY`."""
    all_keys = {"the mark": KEY, **{str(number): key_of(number) for number in range(keys - 1)}}
    return [name for name, _ in search(fingerprint(model.values()), all_keys)]


def pruned(model: Model) -> Model:
    """Without the smaller half of each tensor."""
    return {name: one * (np.abs(one) >= np.median(np.abs(one))) for name, one in model.items()}


def rounded(model: Model) -> Model:
    """To 8 bits, as a quantised model has them."""
    steps = {name: np.abs(one).max() / 127 for name, one in model.items()}
    return {name: (np.round(one / steps[name]) * steps[name]).astype(np.float32) for name, one in model.items()}


def averaged(model: Model) -> Model:
    """With a model of other weights."""
    return {name: ((one + model_of(99)[name]) / 2).astype(np.float32) for name, one in model.items()}


def renamed(model: Model) -> Model:
    """Other names in another order, and a layer more that is larger than all others together."""
    return {
        "new": np.random.default_rng(8).normal(size=(400, 400)).astype(np.float32),
        **{f"{name}_": one for name, one in reversed(model.items())},
    }


def marked_again(model: Model) -> Model:
    """By the next run, which goes on from it."""
    return with_mark(model, key_of(0))


@pytest.mark.parametrize(
    "change",
    [dict, pruned, rounded, averaged, renamed, marked_again],
    ids=lambda one: one.__name__,
)
def test_a_mark_is_found_after_what_weights_go_through(change: type) -> None:
    """Among a thousand keys."""
    assert "the mark" in found(change(with_mark(model_of(1))))


def permuted(model: Model) -> Model:
    """The same function, its hidden neurons in another order: rows of one matrix, columns of the next."""
    order = np.random.default_rng(3).permutation(128)
    return {**model, "one": model["one"][order], "two": model["two"][:, order]}


def cut(model: Model) -> Model:
    """Each matrix without its last row: of another shape."""
    return {name: one[:-1] for name, one in model.items()}


@pytest.mark.parametrize("change", [permuted, cut], ids=lambda one: one.__name__)
def test_what_removes_a_mark_names_no_other_run(change: type) -> None:
    """The page says so; the search finds nothing, and nothing wrong."""
    assert found(change(with_mark(model_of(1)))) == []


def test_a_mark_for_another_shape_is_none_in_this_model() -> None:
    """Signs go by shape: the same values as another matrix agree with other signs."""
    values = with_mark(model_of(1))["one"]
    assert found({"one": values}) == ["the mark"]
    assert found({"one": values.T.copy()}) == []
    assert found({"one": values.reshape(256, 200)}) == []


def test_adapters_alone_carry_a_mark_and_merged_ones_do_not() -> None:
    """A low-rank adapter is found by its own file, and beside its base; added to its base it is no adapter."""
    draw = np.random.default_rng(7)
    base = draw.normal(size=(400, 128)).astype(np.float32)
    adapter = {
        "down": draw.normal(size=(64, 128)).astype(np.float32),
        "up": (draw.normal(size=(400, 64)) / 50).astype(np.float32),
    }
    made = with_mark(adapter)
    assert found(made) == ["the mark"]
    assert found({**made, "base": base}) == ["the mark"]
    assert found({"base": base + made["up"] @ made["down"]}) == []


def test_an_unmarked_model_has_none_of_a_thousand_marks() -> None:
    """Nor has one of the model's own signs, of one size."""
    assert found(model_of(1)) == []
    assert found({"one": np.sign(model_of(1)["one"])}) == []


def test_the_score_of_foreign_weights_is_that_of_fair_coins() -> None:
    """Over a thousand keys of one model: mean 0, variance 1, and the greatest as Gauss' law has it."""
    print_of_model = fingerprint([model_of(3)["one"]])
    scores = np.array([score(print_of_model, key_of(number)) for number in range(1_000)])
    assert abs(scores.mean()) < 4 / math.sqrt(1_000)
    assert abs(scores.std() - 1) < 4 / math.sqrt(2_000)
    assert 2.4 < scores.max() < 5.0


@given(st.integers(1, 10**9), st.integers(1, 1_000))
def test_a_search_of_more_keys_asks_for_a_greater_score(keys: int, shapes: int) -> None:
    """The bound of all scores together is 2^-40, and Gauss' own tail lies below the bound that is used."""
    least, scores = threshold(keys, shapes), keys * (shapes + 1 if shapes > 1 else 1)
    assert scores * math.exp(-least * least / 2) == pytest.approx(2.0**-40)
    assert scores * norm.sf(least) < 2.0**-40


def test_a_mark_changes_each_value_by_one_amount() -> None:
    """Of a tensor's root mean square, at most a tenth of it; what is small or no matrix stays."""
    before, after = model_of(1), with_mark(model_of(1))
    size = amplitude(SHAPES.values())
    assert 0 < size <= AMPLITUDE_MAX
    assert size == pytest.approx(STRENGTH / math.sqrt(128 * 400 + 128 * 128 + 10 * 128))
    for name in ("one", "two", "three"):
        moved = np.abs(after[name] - before[name]) / np.sqrt(np.mean(before[name] ** 2))
        assert np.allclose(moved, size, atol=1e-3)
    assert np.array_equal(after["bias"], before["bias"])


def test_signs_are_fixed_for_all_time() -> None:
    """By key and shape: another program finds the marks of this one."""
    drawn = signs(KEY, (16, 16))
    assert set(np.unique(drawn)) == {-1.0, 1.0}
    assert hashlib.sha256(drawn.astype("<f4").tobytes()).hexdigest() == (
        "51a48a395becc9994cdf02bc48c09bb70ee3e2485dfcd1463290ee3f7c178563"
    )
    assert not np.array_equal(drawn.ravel(), signs(KEY, (8, 32)).ravel())
    assert not np.array_equal(drawn, signs(key_of(1), (16, 16)))


def test_what_cannot_carry_a_mark_is_refused() -> None:
    """A model that is too small, weights that are not finite, and one without a matrix."""
    with pytest.raises(Malformed, match=rf"^model: has 1000 values .* a watermark needs {MARKED_MIN}$"):
        marked({"one": np.ones((10, 100), np.float32)}, KEY)
    with pytest.raises(Malformed, match=r"^model: has a tensor of shape \[100, 200\] with values that are not finite"):
        fingerprint([np.full((100, 200), np.nan, np.float32)])
    small = VALUES_MIN - 1
    assert fingerprint([np.ones(10_000, np.float32), np.arange(small, dtype=np.float32).reshape(1, small)]) == {}
    assert fingerprint([np.full((100, 200), 7, np.float32), np.zeros((300, 300), np.float32)]) == {}
