"""The privacy loss distribution of each mechanism, against exact curves of the same laws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from math import comb

import numpy as np
import pytest
from msgspec import structs
from scipy.special import ndtr

from ledger.accounting.pld import GridTooLarge
from ledger.accounting.pld_mechanisms import compose, intervals, repeated
from ledger.mechanisms import mechanism as m
from ledger.mechanisms.price_proofs import NotPriced

ZERO_OUT, REPLACED = "REPLACE_SPECIAL", "REPLACE_ONE"
EPSILONS = np.array([0.0, 0.1, 0.4, 0.9, 1.6])
STEP = m.PoissonGaussian(Fraction(1, 4), Fraction(2), 1)


def hockey_stick(laws: Sequence[tuple[float, float]]) -> list[float]:
    """H_e of finite laws, the greater of both orders."""
    return [
        max(
            sum(max(0.0, p - math.exp(epsilon) * q) for p, q in laws),
            sum(max(0.0, q - math.exp(epsilon) * p) for p, q in laws),
        )
        for epsilon in EPSILONS
    ]


def response(buckets: int, noise: float, *, replaced: bool) -> list[tuple[float, float]]:
    """Both laws of one answer: of the record that is there, and of another one or of none."""
    low, high = noise / buckets, 1 - noise + noise / buckets
    if replaced:
        return [(high, low), (low, high), *[(low, low)] * (buckets - 2)]
    return [(high, 1 / buckets), *[(low, 1 / buckets)] * (buckets - 1)]


@pytest.mark.parametrize("relation", [ZERO_OUT, REPLACED])
@pytest.mark.parametrize("k", [1, 2])
def test_a_groups_answers_are_as_many_as_its_records(relation: str, k: int) -> None:
    """Randomised response of each: the product of the laws, from above and near."""
    one = response(3, 0.75, replaced=relation == REPLACED)
    laws = [(math.prod(p for p, _ in both), math.prod(q for _, q in both)) for both in product(one, repeat=k)]
    answers = m.RandomisedResponse(3, Fraction(3, 4))
    found = repeated(answers if k == 1 else m.Group(k, answers), relation, 1, 1e-3).curve(EPSILONS)
    assert np.all(found >= hockey_stick(laws))
    assert np.all(found <= np.array(hockey_stick(laws)) + 2e-3)


@pytest.mark.parametrize("relation", [ZERO_OUT, REPLACED])
@pytest.mark.parametrize("mechanism", [m.RandomisedResponse(2, Fraction(1)), m.RandomisedResponse(10**6, Fraction(1))])
def test_an_answer_of_noise_alone_is_one_of_hardly_less_noise(mechanism: m.RandomisedResponse, relation: str) -> None:
    """It loses nothing: what is found is above that by roundings, and is that of the greatest float below 1."""
    found = repeated(m.Group(3, mechanism), relation, 5, 1e-3).curve(EPSILONS)
    # Each of 15 answers may be rounded up by a thousandth of a nat.
    assert 0 <= found[0] <= 15e-3
    assert np.all((found[1:] >= 0) & (found[1:] <= 1e-11))
    less = repeated(structs.replace(mechanism, noise=Fraction(2**53 - 1, 2**53)), relation, 1, 1e-3)
    assert np.array_equal(repeated(mechanism, relation, 1, 1e-3).curve(EPSILONS), less.curve(EPSILONS))


def test_a_group_moves_a_sum_so_many_times_as_far() -> None:
    """Laplace and Gaussian noise over k, and a loss times k; each is one step."""
    pairs: list[tuple[m.Mechanism, m.Mechanism]] = [
        (m.Group(2, m.Laplace(Fraction(4))), m.Laplace(Fraction(2))),
        (m.Group(3, m.Gaussian(Fraction(6))), m.Gaussian(Fraction(2))),
        (m.Group(3, m.Pure(Fraction(1, 5), ZERO_OUT)), m.Pure(Fraction(3, 5), ZERO_OUT)),
    ]
    for group, alone in pairs:
        one, other = (repeated(step, ZERO_OUT, 1, 1e-2) for step in (group, alone))
        assert one.steps == other.steps == 1
        assert np.array_equal(one.curve(EPSILONS), other.curve(EPSILONS))
        assert repeated(alone, ZERO_OUT, 1, 1e-2).delta(0.0) < repeated(alone, ZERO_OUT, 4, 1e-2).delta(0.0)


@pytest.mark.parametrize("k", [1, 2])
def test_of_a_group_as_many_are_drawn_as_happen_to_be(k: int) -> None:
    """A mixture of normal laws: its curve by sums over outputs, which are a lower bound."""
    found = repeated(STEP if k == 1 else m.Group(k, STEP), ZERO_OUT, 1, 0.02).curve(EPSILONS)
    edges = np.linspace(-16.0, 20.0, 4_001)
    cells = [np.diff(ndtr((edges - j) / 2)) for j in range(k + 1)]
    weights = [comb(k, j) * 0.25**j * 0.75 ** (k - j) for j in range(k + 1)]
    with_it = sum((weight * cell for weight, cell in zip(weights, cells, strict=True)), np.zeros(4_000))
    exact = np.array(hockey_stick(list(zip(with_it.tolist(), cells[0].tolist(), strict=True))))
    assert np.all(found >= exact)
    assert np.all(found <= exact + 5e-3)


def test_a_grid_that_would_be_too_large_is_not_begun() -> None:
    """Of 12,000 nats and 5.5 thousandths, more than two millions; the same of sampled, Laplace and pure losses."""
    for step, interval in (
        (m.Gaussian(Fraction(1, 50)), 5.5e-3),
        (m.PoissonGaussian(Fraction(1, 2), Fraction(1, 100), 1), 5.5e-3),
        (m.Laplace(Fraction(1, 100)), 0.9e-4),
        (m.Pure(Fraction(100), ZERO_OUT), 0.9e-4),
    ):
        with pytest.raises(GridTooLarge):
            repeated(step, ZERO_OUT, 1, interval)


def test_what_has_no_distribution_is_named() -> None:
    """A replaced record of sampled steps, and what is known by its moments alone."""
    for step in (STEP, m.Laplace(Fraction(2)), m.Zcdp(REPLACED, rho=Fraction(1), xi=Fraction(0))):
        with pytest.raises(NotPriced, match=f"{step.kind} under {REPLACED}"):
            repeated(step, REPLACED, 1, 1e-2)


def test_parts_are_composed_in_whatever_holds_them() -> None:
    """As often as they run, alone or in a group."""
    parts = m.Composed((m.Laplace(Fraction(20)), m.SelfComposed(2, m.Gaussian(Fraction(9)))))
    whole = compose(m.SelfComposed(3, parts), ZERO_OUT, 1e-2)
    flat = repeated(m.Laplace(Fraction(20)), ZERO_OUT, 3, 1e-2).compose(
        repeated(m.Gaussian(Fraction(9)), ZERO_OUT, 6, 1e-2)
    )
    assert np.allclose(whole.curve(EPSILONS), flat.curve(EPSILONS), atol=2e-3)
    assert np.all(repeated(m.Group(2, parts), ZERO_OUT, 3, 1e-2).curve(EPSILONS[:3]) > whole.curve(EPSILONS[:3]))


def test_what_a_group_sees_is_composed_with_other_laws() -> None:
    """Of one step and an answer as of both apart, and more than of either."""
    step, answer = m.Group(2, STEP), m.Laplace(Fraction(4))
    both = compose(m.Composed((step, answer)), ZERO_OUT, 1e-2).curve(EPSILONS)
    apart = repeated(answer, ZERO_OUT, 1, 1e-2).compose(repeated(step, ZERO_OUT, 1, 1e-2)).curve(EPSILONS)
    assert np.allclose(both, apart, atol=1e-12)
    for one in (step, answer):
        assert np.all(both[:4] > repeated(one, ZERO_OUT, 1, 1e-2).curve(EPSILONS[:4]))


def test_mixtures_are_looked_at_on_the_coarsest_grid_alone() -> None:
    """Sampled steps of a group; not those of one record, nor of all records."""
    for step, grids in ((STEP, 3), (m.Group(2, STEP), 1), (m.Group(2, m.Gaussian(Fraction(2))), 3)):
        assert len(intervals(step)) == grids
    assert len(intervals(m.Group(2, m.PoissonGaussian(Fraction(1), Fraction(2), 1)))) == 3
    assert len(intervals(m.Composed((STEP, m.Group(2, STEP))))) == 1
