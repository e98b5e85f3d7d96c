"""The grid of one sampled Gaussian step, against dp_accounting's own loop over its points."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as library
from dp_accounting.pld.pld_pmf import DensePLDPmf
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.accounting.pld import Distribution
from ledger.accounting.pld_sampled_gaussian import connected, sampled_gaussian

ROUNDING = 1e-15
"""Of a δ: a cell is a second difference of δ, over the interval and over the interval again."""


def cells(law: DensePLDPmf) -> tuple[int, np.ndarray, float]:
    """Where the grid begins, in cells; their probabilities; and the mass at infinity."""
    return law._lower_loss, law._probs, float(law._infinity_mass)  # noqa: SLF001 - nothing public gives them


def differences(noise: float, probability: float, interval: float) -> list[str]:
    """What differs from the library: the grid, the mass at infinity, a cell by more than the rounding of its δ."""
    ours = sampled_gaussian(noise, probability, interval)
    theirs = library.from_gaussian_mechanism(noise, value_discretization_interval=interval, sampling_prob=probability)
    found: list[str] = []
    pairs = zip(Distribution.of(ours).laws, Distribution.of(theirs).laws, strict=True)
    for (low, probs, infinite), (low_theirs, probs_theirs, infinite_theirs) in (map(cells, pair) for pair in pairs):
        if (low, len(probs)) != (low_theirs, len(probs_theirs)):
            found.append(f"grid: {low}, {len(probs)} cells for {low_theirs}, {len(probs_theirs)} cells")
        elif (most := np.abs(probs - probs_theirs).max()) > 8 * ROUNDING / interval:
            found.append(f"a cell by {most}")
        if infinite != pytest.approx(infinite_theirs, rel=1e-9):
            found.append(f"infinity: {infinite} for {infinite_theirs}")
    return found


@pytest.mark.parametrize(
    ("noise", "probability", "interval"),
    [(0.6531, 1 / 186, 1e-4), (1.1, 8 / 1875, 1e-4), (0.3, 1e-6, 1e-3), (5, 0.999, 1e-3), (50, 0.5, 1e-4)],
)
def test_a_step_has_the_librarys_cells(noise: float, probability: float, interval: float) -> None:
    """At the plans that people make, and where nearly none or nearly all are sampled."""
    assert differences(noise, probability, interval) == []


@settings(deadline=None, max_examples=25)
@given(st.floats(0.25, 20), st.floats(1e-7, 1 - 1e-7))
def test_any_step_has_the_librarys_cells(noise: float, probability: float) -> None:
    """Over the whole range, on the coarsest grid."""
    assert differences(noise, probability, 2e-3) == []


@pytest.mark.parametrize(("noise", "probability"), [(0.3, 1e-6), (0.06, 0.5), (50, 0.999)])
def test_a_step_is_computed_without_a_warning(noise: float, probability: float) -> None:
    """Where exponentials are no floats, and logarithms of nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        laws = Distribution.of(sampled_gaussian(noise, probability, 0.02)).laws
    for _, probs, infinite in map(cells, laws):
        assert probs.min() >= 0
        assert probs.sum() + infinite == pytest.approx(1, abs=1e-9)


def test_a_curve_of_few_points_is_connected() -> None:
    """One, or two: what is left of one, and the line between."""
    assert connected(np.array([0.25]), 0.5).tolist() == [0.75]
    both = connected(np.array([0.5, 0.25]), 0.5)
    assert len(both) == 2
    assert both.sum() == pytest.approx(0.75)
    assert both[1] * -np.expm1(-0.5) == pytest.approx(0.25)
