"""Private categories: what their threshold lets out, against exact laws, and what the library would charge for it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.accounting.renyi_closed_forms import delta_of_group
from ledger.mechanisms import statistics as s
from ledger.mechanisms.mechanism import RELATIONS, BlackBox
from ledger.mechanisms.price_proofs import REPLACE
from ledger.mechanisms.statistic_prices import SCALE_SLACK, mechanism_of, noise_of, threshold
from ledger.mechanisms.statistics import PrivateCategories
from tests.trainer_adapter.statistics.asked_statistics import ADDED, Rows
from trainer_adapter.statistics.answers import released
from trainer_adapter.statistics.noisy_answers import noisy_answer, shown
from trainer_adapter.statistics.opendp_noise import measurement_of

dp.enable_features("contrib")
REACH = 90
"""Noise beyond this has a probability below 1e-17 at the scales here."""


def private(epsilon: Fraction, delta: Fraction, most: int = 8) -> PrivateCategories:
    """The categories of the target."""
    return PrivateCategories(name="c", epsilon=epsilon, delta=delta, categories_max=most, column="targets")


def _law(count: int, scale: float, least: int) -> np.ndarray:
    """Of one category with so many records: the chance of each released count, and last that of none."""
    support = np.arange(-REACH, REACH + 12)
    found = np.zeros(len(support) + 1)
    if count:
        weights = np.exp(-np.abs(support - count) / scale)
        weights /= weights.sum()
        found[:-1] = np.where(support >= least, weights, 0.0)
    found[-1] = 1.0 - found[:-1].sum()
    return found


def _exceeds(one: tuple[int, int], other: tuple[int, int], scale: float, least: int, epsilon: float) -> float:
    """By how much any event of two categories' answers is more probable than e^ε times as much: the exact δ."""
    left, right = (np.multiply.outer(_law(a, scale, least), _law(b, scale, least)) for a, b in (one, other))
    return float(np.maximum(left - math.exp(epsilon) * right, 0.0).sum())


def _near(relation: str, records: int = 1) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Counts of two categories, and the same with some records fewer, or of the other category, both ways round."""
    for a, b in product(range(5), repeat=2):
        moved = [(a - k, b - (records - k)) for k in range(records + 1)]
        if relation == REPLACE:
            moved = [(a - records, b + records), (a - records, b), (a, b - records)]
        for other in moved:
            if min(other) >= 0:
                yield (a, b), other
                yield other, (a, b)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("epsilon", "delta"), [(Fraction(1), Fraction(1, 50)), (Fraction(2), Fraction(1, 1_000))])
def test_an_exact_adversary_gains_at_most_the_stated_delta(relation: str, epsilon: Fraction, delta: Fraction) -> None:
    """From the laws of all answers to all small neighbouring data sets; a threshold one lower gives more away."""
    asked = private(epsilon, delta)
    scale, least = noise_of(asked, relation).laplace, threshold(asked, relation)
    assert scale is not None

    def worst(at: int) -> float:
        return max(_exceeds(*pair, float(scale or 0), at, float(epsilon)) for pair in _near(relation))

    assert worst(least) <= float(delta) * (1 + 1e-9)
    if relation != REPLACE:
        assert worst(least - 1) > float(delta)


@pytest.mark.parametrize("records", [2, 3])
def test_a_user_gains_at_most_what_a_group_is_charged(records: int) -> None:
    """Several records at once, of one category or of two."""
    epsilon, delta = Fraction(1, 2), Fraction(1, 200)
    asked = private(epsilon, delta)
    scale, least = noise_of(asked, ADDED).laplace, threshold(asked, ADDED)
    assert scale is not None
    charged = float(delta_of_group(epsilon, delta, records))
    pairs = _near(ADDED, records)
    worst = max(_exceeds(*pair, float(scale), least, records * float(epsilon)) for pair in pairs)
    assert float(delta) < worst <= charged


@given(
    st.fractions(Fraction(1, 1_000), 64), st.fractions(Fraction(1, 2**52), Fraction(1, 2)), st.sampled_from(RELATIONS)
)
def test_the_threshold_is_the_least_by_a_series(epsilon: Fraction, delta: Fraction, relation: str) -> None:
    """The tail of the drawn noise, added up term by term, is within the stated δ, and one count lower it is not."""
    asked = private(epsilon, delta)
    made, least = noise_of(asked, relation).laplace, threshold(asked, relation)
    assert made is not None
    rate = 1 / float(made)
    allowed = math.log(delta) - (math.log1p(math.exp(float(epsilon) / 2)) if relation == REPLACE else 0.0)
    # P(X >= n) by the sum of e^(-kb) over k >= n and the sum over all whole numbers.
    tails = [-n * rate - math.log1p(math.exp(-rate)) for n in (least - 1, least - 2)]
    assert tails[0] <= allowed + 1e-9
    assert least == 1 or tails[1] > allowed - 1e-6


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_drawn_scale_is_within_what_the_threshold_counts_on(relation: str) -> None:
    """Noise that is rounded up has a heavier tail; the library's own map says of which scale it is."""
    for epsilon in (Fraction(1, 3), Fraction(7, 1_000), Fraction(13)):
        asked = private(epsilon, Fraction(1, 10**6))
        moved = 2 if relation == REPLACE else 1
        least_loss = Fraction(measurement_of(asked, relation).map(moved))
        assert epsilon / SCALE_SLACK <= least_loss <= epsilon
        assert mechanism_of(asked, relation) == BlackBox(Fraction(1, 10**6), epsilon, relation)


def test_what_is_beyond_the_threshold_is_released_and_no_more() -> None:
    """Rising, the greatest counts if there are too many, the smaller category where counts are equal."""
    categories, noisy = np.array([-3, 0, 2, 7, 9]), np.array([11, 10, 30, 11, 9])
    asked = private(Fraction(1), Fraction(1, 10))
    found = released(asked, categories, noisy, 10)
    assert (found["c.values"].tolist(), found["c.counts"].tolist()) == ([-3, 0, 2, 7], [11, 10, 30, 11])
    fewer = released(private(Fraction(1), Fraction(1, 10), 2), categories, noisy, 10)
    assert (fewer["c.values"].tolist(), fewer["c.counts"].tolist()) == ([-3, 2], [11, 30])
    assert released(asked, categories, noisy, 31)["c.values"].tolist() == []


def test_rare_categories_and_what_is_none_stay_inside() -> None:
    """A category of two records passes a threshold of 24 with a probability of e^-22; two hundred records do."""
    rows = [(0.0, 0.0, value) for value in [4.0] * 200 + [8.0] * 250 + [5.0] * 2 + [math.nan, 0.5, math.inf, 1e300]]
    asked = private(Fraction(1), Fraction(1, 10**10))
    assert threshold(asked, ADDED) == 24
    found = noisy_answer(asked, ADDED, Rows(rows))
    assert found["c.values"].tolist() == [4, 8]
    assert (abs(found["c.counts"].numpy() - [200, 250]) < 40).all()
    nothing = noisy_answer(asked, ADDED, Rows([]))
    assert (nothing["c.values"].tolist(), shown(nothing["c.values"])) == ([], "none")


def test_single_records_leave_as_often_as_the_tail_says_and_the_library_says_less_often() -> None:
    """Four thousand categories of one record each.

    The library's threshold constructor reports too small a δ (opendp#2922): the tail one count further out, for the
    same counts that it lets through.
    """
    asked, count = private(Fraction(1), Fraction(1, 10), s.CELLS_MAX), 4_000
    least = threshold(asked, ADDED)
    tail = math.exp(-(least - 1)) / (1 + math.exp(-1))
    found = noisy_answer(asked, ADDED, Rows([(0.0, 0.0, float(value)) for value in range(count)]))
    assert abs(len(found["c.values"]) - count * tail) < 6 * math.sqrt(count * tail)
    assert tail <= 0.1
    counts = dp.map_domain(dp.atom_domain(T="i64"), dp.atom_domain(T="i64"))
    metric = dp.l01inf_distance(dp.absolute_distance(T="i64"))
    theirs = dp.m.make_laplace_threshold(counts, metric, scale=1.0, threshold=least)
    _, stated = theirs.map((1, 1, 1))
    assert stated <= tail * (1 + 1e-9)
