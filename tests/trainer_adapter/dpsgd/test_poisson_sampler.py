"""Poisson sampling: the threshold is exact, every record has its own word, padding is masked."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from trainer_adapter.dpsgd.csprng import CsprngRandomness, Stream
from trainer_adapter.dpsgd.geometric_gaps import gaps
from trainer_adapter.dpsgd.poisson_sampler import WORDS_AT_ONCE, draw, microbatches, threshold

KEY = bytes(range(32))
PROBABILITIES = st.fractions(min_value=Fraction(1, 10**9), max_value=1)


@given(PROBABILITIES)
def test_threshold_is_below_the_plan_by_less_than_one_word(probability: Fraction) -> None:
    """The sampler's exact probability is at most the plan's and within 2^-64 of it."""
    sampled = Fraction(threshold(probability), 2**64)
    assert probability - Fraction(1, 2**64) < sampled <= probability


def test_threshold_where_a_float_would_be_wrong() -> None:
    """At 1/3 and just below 1, where a float loses bits, it is exact; at 1 every word enters."""
    assert threshold(Fraction(1, 3)) == (2**64 - 1) // 3
    assert threshold(Fraction(2**60 - 1, 2**60)) == 2**64 - 16
    assert threshold(Fraction(1)) == 2**64
    assert threshold(Fraction(1, 10**9)) == 18_446_744_073


@settings(deadline=None, max_examples=50)
@given(st.fractions(min_value=Fraction(1, 15), max_value=1), st.integers(0, 300))
def test_draw_compares_each_records_own_word(probability: Fraction, records: int) -> None:
    """Who enters is what comparing each word with the exact fraction in Python's integers says."""
    words = Stream(KEY, bytes(12)).words(records).tolist()
    expected = [i for i, word in enumerate(words) if word < probability.numerator * 2**64 // probability.denominator]
    assert draw(Stream(KEY, bytes(12)), records, probability).tolist() == expected


def test_a_word_at_the_threshold_stays_out() -> None:
    """A record whose word is w stays out at probability w / 2^64 and enters at (w + 1) / 2^64."""
    (word,) = Stream(KEY, bytes(12)).words(1).tolist()
    assert draw(Stream(KEY, bytes(12)), 1, Fraction(word, 2**64)).tolist() == []
    assert draw(Stream(KEY, bytes(12)), 1, Fraction(word + 1, 2**64)).tolist() == [0]


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 2**60), st.integers(1, 100_000), st.integers(0, 10**6))
def test_gaps_are_those_of_exact_arithmetic(below: int, most: int, seed: int) -> None:
    """Each gap m is where (1 - p)^m passes the uniform number of its word, in fractions' powers bounded by integers."""
    key = seed.to_bytes(32, "little")
    words = Stream(key, bytes(12)).words(20).tolist()
    for word, gap in zip(words, gaps(Stream(key, bytes(12)), 20, below, most).tolist(), strict=True):
        with localcontext() as context:
            context.prec = 60
            survives = 1 - Decimal(below) / 2**64
            if gap < most:
                assert survives ** (gap + 1) < Decimal(word + 1) / 2**64
            assert survives**gap * (1 + Decimal(10) ** -50) > Decimal(word) / 2**64


class _Given(Stream):
    """A stream that gives these words."""

    def __init__(self, *words: int) -> None:
        super().__init__(KEY, bytes(12))
        self.left = list(words)

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next of them."""
        taken, self.left = self.left[:count], self.left[count:]
        return np.array(taken, dtype=np.uint64)


def test_a_word_that_leaves_two_gaps_open_is_read_on() -> None:
    """At 1/32 the word in which (1 - p)^m lies: what follows it decides between m - 1 and m, at the very bit."""
    below, exact = 1 << 59, Fraction(31, 32)
    for gap in (13, 20, 40, 77):
        edge = exact**gap
        word, rest = divmod(edge.numerator * 2**128 // edge.denominator, 2**64)
        assert gaps(_Given(word, rest - 2), 1, below, 1000).tolist() == [gap]
        assert gaps(_Given(word, rest + 2), 1, below, 1000).tolist() == [gap - 1]
        assert gaps(_Given(word - 1), 1, below, 1000).tolist() == [gap]
        assert gaps(_Given(word + 1), 1, below, 1000).tolist() == [gap - 1]


def test_a_word_of_zeros_is_a_long_gap() -> None:
    """The longest that words tell, and no logarithm of zero."""
    assert gaps(_Given(0, 0, 1), 1, 1 << 60, 500).tolist() == [500]
    assert gaps(_Given(2**64 - 1, 2**64 - 1), 1, 1 << 60, 500).tolist() == [0]


def test_a_draw_takes_about_as_many_words_as_records_enter() -> None:
    """One of a thousand out of a million: a thousand words and a little more, all places distinct and rising."""
    stream = Stream(KEY, bytes(12))
    drawn = draw(stream, 10**6, Fraction(1, 1000))
    assert 800 < len(drawn) < 1200
    assert (np.diff(drawn) > 0).all()
    assert 0 <= drawn[0] <= drawn[-1] < 10**6
    rest = Stream(KEY, bytes(12)).words(3000).tolist()
    assert int(stream.words(1)[0]) in rest[:1300]


def test_draws_by_gaps_follow_the_binomial() -> None:
    """Sizes of 3,000 draws at 1/20: mean and variance within 5 deviations."""
    sizes = np.array([len(draw(Stream(KEY, one.to_bytes(12, "little")), 400, Fraction(1, 20))) for one in range(3000)])
    assert abs(sizes.mean() - 20) < 5 * math.sqrt(19 / 3000)
    assert abs(sizes.var() / 19 - 1) < 5 * math.sqrt(2 / 3000)


def test_draw_over_more_words_than_are_made_at_once() -> None:
    """Places run on across the seam between two portions of words."""
    records = WORDS_AT_ONCE + 100
    words = Stream(KEY, bytes(12)).words(records)
    drawn = draw(Stream(KEY, bytes(12)), records, Fraction(1, 2))
    assert np.array_equal(drawn, np.flatnonzero(words < np.uint64(2**63)))


def test_at_probability_one_every_record_enters() -> None:
    """No word is too large at probability 1."""
    assert draw(Stream(KEY, bytes(12)), 1000, Fraction(1)).tolist() == list(range(1000))


def test_a_tiny_probability_still_draws_and_mostly_nothing() -> None:
    """At 1e-9 a thousand records give an empty draw, and no microbatch."""
    drawn = draw(Stream(KEY, bytes(12)), 1000, Fraction(1, 10**9))
    assert drawn.tolist() == []
    assert list(microbatches(drawn, 8)) == []


@pytest.mark.parametrize("probability", [Fraction(1, 100), Fraction(16, 175), Fraction(9, 10)])
def test_every_record_enters_as_often_as_the_plan_says(probability: Fraction, randomness: CsprngRandomness) -> None:
    """Over 2,000 steps each of 50 records, their mean and each pair are within 6 deviations."""
    steps, records, rate = 2000, 50, float(probability)
    entered = np.zeros((steps, records))
    for step in range(steps):
        entered[step, draw(randomness.stream("sampler", step + 1), records, probability)] = 1
    spread = math.sqrt(rate * (1 - rate) / steps)
    assert np.abs(entered.mean(axis=0) - rate).max() < 6 * spread
    assert abs(entered.mean() - rate) < 6 * spread / math.sqrt(records)
    pairs = (entered[:, :-1] * entered[:, 1:]).mean(axis=0)
    assert np.abs(pairs - rate**2).max() < 6 * math.sqrt(rate**2 * (1 - rate**2) / steps)


@given(st.lists(st.integers(0, 10**6), unique=True, max_size=60), st.integers(1, 17))
def test_microbatches_hold_each_drawn_record_once(drawn: list[int], size: int) -> None:
    """All have one size, the mask lets through the draw in order, only the last is filled up."""
    batches = list(microbatches(np.array(drawn, dtype=np.int64), size))
    assert all(batch.indices.shape == batch.mask.shape == (size,) for batch in batches)
    assert [int(i) for batch in batches for i in batch.indices[batch.mask]] == drawn
    assert all(batch.mask.all() for batch in batches[:-1])
    assert len(batches) == -(-len(drawn) // size)
