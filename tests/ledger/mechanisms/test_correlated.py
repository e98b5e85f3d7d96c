"""Correlated noise: the matrix to 40 digits, its sensitivity by brute force, and the plan's form and price."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from ledger.mechanisms.correlated import BANDS_MAX, CorrelatedPlan, coefficients, column_norm
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
    ],
)
def test_a_plan_out_of_bounds_is_named(changes: dict[str, object], field: str) -> None:
    """By its field."""
    with pytest.raises(Malformed) as refused:
        of(**changes)
    assert refused.value.field.split(".")[0] == field
