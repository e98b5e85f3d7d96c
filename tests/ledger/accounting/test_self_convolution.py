"""The convolution of a law with itself: the library's own values, and nearly all of the mass between its ends."""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting.pld import common
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.accounting.pld import Moments, self_convolved

TAIL = 1e-15


def law_of(seed: int, points: int, heavy: float) -> np.ndarray:
    """Some law on so many points, of which one holds a part of the mass."""
    dice = np.random.default_rng(seed)
    law = dice.exponential(size=points) * np.exp(-dice.uniform(0, 12) * np.arange(points) / points)
    law *= (1 - heavy) / law.sum()
    law[dice.integers(points)] += heavy
    return law


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(2, 400), st.floats(0, 0.999), st.sampled_from([2, 3, 17, 186, 2_000]))
def test_it_is_the_librarys(seed: int, points: int, heavy: float, count: int) -> None:
    """The same ends but for a place, where a bound was rounded, and each value to the error of a transform."""
    law = law_of(seed, points, heavy)
    low, high = Moments.of(law).ends(count)
    theirs = common.compute_self_convolve_bounds(law, count, TAIL)
    assert abs(low - theirs[0]) <= 1
    assert abs(high - theirs[1]) <= 1
    start, whole = common.self_convolve(law, count, TAIL)
    ours = self_convolved(law, count, low, high)
    first, last = max(low, start), min(high + 1, start + len(whole))
    both = ours[first - low : last - low], np.asarray(whole)[first - start : last - start]
    assert np.abs(both[0] - both[1]).max() < 1e-13


@pytest.mark.parametrize("seed", range(8))
def test_what_lies_beyond_the_ends_is_less_than_the_tail(seed: int) -> None:
    """By sums of positive products alone, which lose nothing: the mass on both sides, and every value between."""
    law = law_of(seed, 60, 0.9 if seed % 2 else 0.0)
    whole, count = law, 24
    for _ in range(count - 1):
        whole = np.convolve(whole, law)
    low, high = Moments.of(law).ends(count)
    assert whole[:low].sum() + whole[high + 1 :].sum() <= TAIL
    assert (low, high) != (0, len(whole) - 1)
    assert np.abs(self_convolved(law, count, low, high) - whole[low : high + 1]).max() < 1e-14
