"""Correlated noise: the matrix to 40 digits, its sensitivity by brute force, and the plan's form and price."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from ledger.mechanisms.correlated.correlated_plan import CorrelatedPlan
from ledger.mechanisms.correlated.strategies import BANDS_MAX, root_above, square_root
from ledger.mechanisms.mechanism import PoissonGaussian
from ledger.mechanisms.plan_reader import parse_plan
from ledger.wire.malformed import Malformed

PLAN: dict[str, Any] = {
    "bands": 4,
    "batch_size_expected": 64,
    "clipping_norm": "1",
    "kind": "correlated",
    "noise_multiplier": "4",
    "rounds": 15,
    "sampler": {"kind": "poisson", "probability": "0.25"},
    "v": 1,
}


def of(**changes: object) -> CorrelatedPlan:
    """The plan with these members changed."""
    return CorrelatedPlan.of(parse_plan({**PLAN, **changes}))


def coefficients(bands: int) -> tuple[Fraction, ...]:
    """All of the square root's."""
    return (Fraction(1), *square_root(bands).coefficients)


def column_norm(bands: int) -> Fraction:
    """|c| of the square root."""
    return root_above(square_root(bands).column_square(bands))


def matrix(bands: int, steps: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """C, written out."""
    found = np.zeros((steps, steps))
    for place, value in enumerate(coefficients(bands)):
        found += np.diag(np.full(steps - place, float(value)), -place) if place < steps else 0
    return found


def test_the_coefficients_are_those_of_a_square_root_to_40_digits() -> None:
    """Of the matrix of prefix sums; their norm is rounded up, by less than 2^-79."""
    with mpmath.workdps(50):
        taylor = mpmath.taylor(lambda x: (1 - x) ** mpmath.mpf("-0.5"), 0, BANDS_MAX - 1)
        own = coefficients(BANDS_MAX)
        assert all(
            abs(mpmath.mpf(one.numerator) / one.denominator - other) < 1e-40
            for one, other in zip(own, taylor, strict=True)
        )
        for bands in (2, 3, 17, BANDS_MAX):
            exact = mpmath.sqrt(sum(mpmath.mpf(one.numerator) ** 2 / one.denominator**2 for one in own[:bands]))
            norm = column_norm(bands)
            above = mpmath.mpf(norm.numerator) / norm.denominator - exact
            assert 0 <= above < mpmath.mpf(2) ** -79
    square = matrix(12, 12) @ matrix(12, 12)
    assert np.allclose(square, np.tril(np.ones((12, 12))), atol=1e-14)


@pytest.mark.parametrize(("bands", "rounds"), [(2, 4), (3, 3), (5, 2)])
def test_no_unit_moves_the_product_further_than_its_rounds_allow(bands: int, rounds: int) -> None:
    """Every subset of a group's steps, with contributions of norm 1 in every direction: |C g|² is at most k |c|²."""
    steps, generator = bands * rounds, np.random.default_rng(bands)
    written, limit = matrix(bands, steps), float(column_norm(bands)) * (1 + 1e-12)
    for group in range(bands):
        own = np.arange(group, steps, bands)
        for chosen in range(1, 1 << rounds):
            taken = own[[bool(chosen >> place & 1) for place in range(rounds)]]
            given = np.zeros((steps, 3))
            given[taken] = generator.normal(size=(len(taken), 3))
            given[taken] /= np.linalg.norm(given[taken], axis=1, keepdims=True)
            moved = written @ given
            assert np.linalg.norm(moved) <= np.sqrt(len(taken)) * limit
            for at in taken:
                rows = moved[at : at + bands]
                assert np.linalg.norm(rows) <= limit, "and no more in the rows of one round"


def test_a_step_apart_less_than_the_bands_would_cost_more() -> None:
    """Why participation is cyclic: two steps in a row move the product further than two rounds are priced."""
    given = np.zeros(8)
    given[[3, 4]] = 1
    assert np.linalg.norm(matrix(4, 8) @ given) > np.sqrt(2) * float(column_norm(4)) * 1.1


def test_a_plan_is_priced_by_its_rounds() -> None:
    """As many sampled Gaussian sums as there are rounds; a prefix of them too."""
    plan = of()
    assert plan.whole == PoissonGaussian(Fraction(1, 4), Fraction(4), 15)
    assert plan.mechanism(7) == PoissonGaussian(Fraction(1, 4), Fraction(4), 7)
    assert (plan.steps, plan.training.steps, plan.unit) == (15, 60, "record")
    assert parse_plan(plan.to_json()) == plan
    assert of(unit="user").unit == "user"
    assert plan.column_norm == column_norm(4)
    assert plan.independent_noise == 4 * column_norm(4)


BANDED: dict[str, Any] = {"coefficients": ["0.6", "0.5", "0.2"], "kind": "banded"}
BUFFERED: dict[str, Any] = {"decays": ["0.99", "0.5"], "kind": "buffered", "scales": ["0.1", "0.3"]}
STREAM: dict[str, object] = {"bands": 1_000, "rounds": 1, "sampler": {"kind": "poisson", "probability": "1"}}


def test_a_plan_states_its_matrix_and_draws_its_noise_by_it() -> None:
    """The price is that of the noise multiplier; the matrix decides how much noise that is."""
    plan, root = of(strategy=BANDED), of()
    assert (plan.to_json()["strategy"], plan.whole) == (BANDED, root.whole)
    assert plan.column_norm**2 >= 1 + Fraction("0.36") + Fraction("0.25") + Fraction("0.04")
    assert plan.column_norm**2 < Fraction("1.65") + Fraction(1, 2**70)
    assert "strategy" not in root.to_json()
    assert plan.digest != root.digest


def test_a_stream_is_one_round_and_one_gaussian_sum() -> None:
    """Each record enters one of a thousand steps, so all of it costs what one Gaussian sum does, |c| over every row."""
    plan = of(strategy=BUFFERED, **STREAM)
    assert plan.whole == PoissonGaussian(Fraction(1), Fraction(4), 1)
    assert (plan.steps, plan.training.steps) == (1, 1_000)
    square = sum((0.1 * 0.99**row + 0.3 * 0.5**row) ** 2 for row in range(999)) + 1
    assert float(plan.column_norm) == pytest.approx(square**0.5, rel=1e-13)
    assert plan.column_norm > of(strategy=BUFFERED, **{**STREAM, "bands": 100}).column_norm


def test_old_plans_keep_their_bytes() -> None:
    """A plan without a strategy has the digest that it had before there were any."""
    assert of().digest == "7e4bb4630e9bec45472247fdcebccce16bb905cb6910f0c0dd8cfb73a6650f38"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"bands": 1}, "bands"),
        ({"bands": BANDS_MAX + 1}, "bands"),
        ({"rounds": 0}, "rounds"),
        ({"rounds": 10_000_000}, "rounds"),
        ({"noise_multiplier": "0"}, "noise_multiplier"),
        ({"clipping_norm": "0"}, "clipping_norm"),
        ({"sampler": {"kind": "poisson", "probability": "2"}}, "sampler"),
        ({"steps": 3}, "steps"),
        ({"v": 2}, "v"),
        ({"bands": 5, "strategy": BANDED}, "strategy"),
        ({"bands": 65, "strategy": BANDED}, "bands"),
        ({"bands": 65, "rounds": 1}, "bands"),
        ({"strategy": BUFFERED}, "strategy"),
        ({**STREAM, "rounds": 2, "strategy": BUFFERED}, "strategy"),
        ({"strategy": {**BANDED, "coefficients": ["0.6", "0.5", "0.51"]}}, "strategy"),
        ({"strategy": {**BANDED, "coefficients": ["1.1", "0.5", "0.2"]}}, "strategy"),
        ({"strategy": {**BANDED, "coefficients": ["-0.1", "-0.2", "-0.3"]}}, "strategy"),
        ({"strategy": {**BANDED, "coefficients": [0.5, 0.4, 0.3]}}, "strategy"),
        ({"strategy": {**BANDED, "coefficients": []}}, "strategy"),
        ({"strategy": {**BANDED, "kind": "dense"}}, "strategy"),
        ({**STREAM, "strategy": {**BUFFERED, "decays": ["1", "0.5"]}}, "strategy"),
        ({**STREAM, "strategy": {**BUFFERED, "decays": ["0.5"]}}, "strategy"),
        ({**STREAM, "strategy": {**BUFFERED, "scales": ["0.6", "0.5"]}}, "strategy"),
    ],
)
def test_a_plan_out_of_bounds_is_named(changes: dict[str, object], field: str) -> None:
    """By its field."""
    with pytest.raises(Malformed) as refused:
        of(**changes)
    assert refused.value.field.split(".")[0] == field
