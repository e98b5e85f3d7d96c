"""The library's noise: never less than was charged for, by its own map, by exact laws, and by what it draws."""

import ast
import inspect
import math
from fractions import Fraction
from itertools import permutations, product
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.accounting.pure_dp import pure_epsilon
from ledger.accounting.renyi import divergence
from ledger.mechanisms import statistic_prices as prices
from ledger.mechanisms import statistics as s
from ledger.mechanisms.decomposition import group_privacy
from ledger.mechanisms.mechanism import RELATIONS
from ledger.mechanisms.price_proofs import REPLACE
from tests.trainer_adapter.statistics.asked_statistics import ADDED, Rows, each, quantile
from trainer_adapter.statistics import opendp_noise
from trainer_adapter.statistics.exact_totals import exact_totals
from trainer_adapter.statistics.opendp_noise import PROVEN, distance_of, draw, measurement_of

dp.enable_features("contrib")
WHOLE = dp.vector_domain(dp.atom_domain(T="i64"))
BOUNDED = dp.vector_domain(dp.atom_domain(T="i64", bounds=(-s.GRID, s.GRID)))
METRIC = dp.symmetric_distance()


def _library_distance(statistic: s.Statistic, changed: int) -> float:
    """What the library's own transformations say of so many added and removed records, in the noise's metric."""
    gaussian = statistic.rho is not None
    match statistic:
        case s.Count():
            return float(dp.t.make_count(WHOLE, METRIC).map(changed))
        case s.ClippedSum() | s.Moments():
            one = float(dp.t.make_sum(BOUNDED, METRIC).map(changed))
            numbers = len(statistic.columns) if isinstance(statistic, s.ClippedSum) else 1 + 2 * len(statistic.columns)
            return math.sqrt(numbers) * one if gaussian else numbers * one
        case s.Quantile():
            scores = dp.t.make_quantile_score_candidates(WHOLE, METRIC, [0, 1, 2], alpha=float(statistic.level))
            return float(scores.map(changed))
        case _:
            cells = len(exact_totals(statistic, Rows([])))
            metric = "L2Distance<i32>" if gaussian else "L1Distance<i32>"
            counts = dp.t.make_count_by_categories(
                WHOLE, METRIC, list(range(cells)), null_category=False, MO=metric, TOA="i32"
            )
            return float(counts.map(changed))


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("k", [1, 2, 5, 64])
@pytest.mark.parametrize("noise", [{"epsilon": Fraction(1, 3)}, {"rho": Fraction(1, 7)}], ids=["laplace", "gaussian"])
def test_no_price_is_below_the_librarys_map(relation: str, k: int, noise: dict[str, Fraction]) -> None:
    """Of each statistic, under each relation, for a record and for users of k: the table, cell by cell."""
    kinds = each(**noise)
    asked = kinds if "rho" in noise else (*kinds, quantile(Fraction(1, 4), noise["epsilon"]))
    for statistic in asked:
        changed = k * (2 if relation == REPLACE else 1)
        theirs = _library_distance(statistic, changed)
        ours = distance_of(prices.sensitivity(statistic), statistic, relation, k)
        assert ours >= theirs, statistic.name
        measurement = measurement_of(statistic, relation)
        loss = Fraction(measurement.map(theirs if statistic.rho is not None else int(theirs)))
        mechanism = group_privacy(k, prices.mechanism_of(statistic, relation))
        if statistic.rho is None:
            assert loss <= pure_epsilon(mechanism, relation), statistic.name
        else:
            charged = divergence(mechanism, relation, 2)
            assert charged is not None
            assert 2 * loss <= charged, statistic.name


@given(st.fractions(Fraction(1, 10**9), 256), st.fractions(Fraction(1, 10**12), 256), st.sampled_from(RELATIONS))
def test_the_map_is_within_every_price_and_near_it(epsilon: Fraction, rho: Fraction, relation: str) -> None:
    """Rounding gives less loss, never more, and less than a part in ten million."""
    for statistic in (*each(epsilon=epsilon)[3:5], quantile(Fraction(1, 3), epsilon), *each(rho=rho)[3:5]):
        made = measurement_of(statistic, relation)
        price = statistic.rho or statistic.epsilon
        assert price is not None
        loss = Fraction(made.map(distance_of(prices.sensitivity(statistic), statistic, relation)))
        assert price * (1 - Fraction(1, 10**7)) <= loss <= price


def test_only_constructors_with_a_proof_are_called() -> None:
    """Each cites its proof document, and the module names no other and no transformation of the library."""
    for name in PROVEN:
        assert "(Proof Document)" in str(inspect.getdoc(getattr(dp.m, name))), name
    tree = ast.parse(inspect.getsource(opendp_noise))
    called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and "make_" in node.attr}
    assert called == set(PROVEN)


def _laplace(scale: float, reach: int) -> np.ndarray[Any, Any]:
    weights = np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale)
    return np.asarray(weights / weights.sum())


@pytest.mark.parametrize("relation", RELATIONS)
def test_an_exact_adversary_reaches_the_price_and_no_more(relation: str) -> None:
    """Of a histogram, from the laws of its answers to all small neighbouring data sets: the greatest loss is ε."""
    (statistic,) = (one for one in each(epsilon=Fraction(1, 2)) if one.name == "histogram")
    scale = prices.noise_of(statistic, relation).laplace
    assert scale is not None
    law = _laplace(float(scale), 60)
    worst = 0.0
    people = [(-1.0, 0.0, 0.0), (0.5, 0.0, 0.0), (9.0, 0.0, 0.0), (math.nan, 0.0, 0.0)]
    for rows in product(people, repeat=2):
        neighbours = [[one, rows[1]] for one in people] if relation == REPLACE else [list(rows[1:])]
        for other in neighbours:
            change = exact_totals(statistic, Rows(rows)) - exact_totals(statistic, Rows(other))
            # In each cell the greatest log-ratio of the law and itself moved by the change; the cells are independent.
            worst = max(worst, sum(_greatest_loss(law, int(moved)) for moved in change))
    assert worst == pytest.approx(0.5, rel=1e-9)


def _greatest_loss(law: np.ndarray[Any, Any], moved: int) -> float:
    ends = len(law) - abs(moved)
    return float(np.max(np.abs(np.log(law[:ends]) - np.log(law[abs(moved) :]))))


@pytest.mark.parametrize("moved", [1, 2, 5])
def test_discrete_gaussian_noise_is_within_its_renyi_curve(moved: int) -> None:
    """Summed over its support, at several orders."""
    sigma_square = 3.0
    support = np.arange(-400, 401, dtype=np.float64)
    logs = -(support**2) / (2 * sigma_square)
    logs -= np.log(np.exp(logs).sum())
    for order in (2, 4, 8):
        exact = float(np.log(np.exp(order * logs[moved:] - (order - 1) * logs[:-moved]).sum()) / (order - 1))
        assert exact <= order * moved**2 / (2 * sigma_square) * (1 + 1e-9)


def _permute_and_flip(scores: tuple[int, ...], scale: float) -> list[float]:
    """Exactly: candidates in a random order, each accepted by a coin, the best for certain."""
    best, chances = min(scores), [0.0] * len(scores)
    orders = list(permutations(range(len(scores))))
    for order in orders:
        left = 1 / len(orders)
        for one in order:
            accepted = math.exp((best - scores[one]) / scale)
            chances[one] += left * accepted
            left *= 1 - accepted
    return chances


def test_a_quantile_loses_at_most_epsilon_and_is_not_charged_by_rho() -> None:
    """By exact laws; ε²/8-zCDP, which some releases of the library claim of it (opendp#2911), does not hold."""
    asked = quantile(Fraction(1, 2), Fraction(1))
    scale = prices.noise_of(asked, ADDED).selection
    assert scale is not None
    assert prices.sensitivity(asked).scores == 1
    near = [(left, right) for left in product(range(3), repeat=3) for right in _neighbours(left)]
    losses = [_loss(*(_permute_and_flip(scores, float(scale)) for scores in pair)) for pair in near]
    assert 0.9 < max(losses) <= 1 + 1e-12
    left, right = _permute_and_flip((0, 0), float(scale)), _permute_and_flip((1, -1), float(scale))
    square = math.log(sum(p * p / q for p, q in zip(left, right, strict=True)))
    assert square > 2 * 1 / 8


def _neighbours(scores: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [tuple(a + b for a, b in zip(scores, move, strict=True)) for move in product((-1, 0, 1), repeat=3)]


def _loss(left: list[float], right: list[float]) -> float:
    return max(abs(math.log(p / q)) for p, q in zip(left, right, strict=True))


@pytest.mark.parametrize("noise", [{"epsilon": Fraction(1, 4)}, {"rho": Fraction(1, 32)}], ids=["laplace", "gaussian"])
def test_what_is_drawn_has_the_law_that_was_charged(noise: dict[str, Fraction]) -> None:
    """Twenty thousand draws at scale 4: each of 25 values as often as its law says, within six deviations."""
    (statistic,) = each(**noise)[:1]
    count, reach = 20_000, 12
    drawn = draw(statistic, ADDED, np.zeros(count, dtype=np.int64))
    support = np.arange(-200, 201)
    weights = np.exp(-np.abs(support) / 4.0) if "epsilon" in noise else np.exp(-(support**2) / 32.0)
    law = weights / weights.sum()
    for value in range(-reach, reach + 1):
        expected = count * law[value + 200]
        assert abs(np.count_nonzero(drawn == value) - expected) < 6 * math.sqrt(expected) + 6, value
    assert len({tuple(draw(statistic, ADDED, np.zeros(8, dtype=np.int64)).tolist()) for _ in range(20)}) == 20


def test_a_quantile_is_drawn_by_its_law() -> None:
    """Four thousand choices among four candidates, against the exact chances."""
    asked = quantile(Fraction(1, 2), Fraction(1))
    scale = prices.noise_of(asked, ADDED).selection
    assert scale is not None
    scores = (3, 0, 1, 4)
    made = measurement_of(asked, ADDED)
    drawn = [made([*scores])[0] for _ in range(4_000)]
    assert draw(asked, ADDED, np.array(scores)).shape == (1,)
    for place, chance in enumerate(_permute_and_flip(scores, float(scale))):
        assert abs(drawn.count(place) - 4_000 * chance) < 6 * math.sqrt(4_000 * chance)


def test_numbers_beyond_64_bits_are_cut_off() -> None:
    """The library adds with an end, and does not wrap around."""
    (statistic,) = each(epsilon=Fraction(1, 10**9))[:1]
    ends = np.array([2**63 - 1, -(2**63)] * 50, dtype=np.int64)
    drawn = draw(statistic, ADDED, ends)
    assert (drawn[::2] > 0).all()
    assert (drawn[1::2] < 0).all()
