"""The noise of each strategy is the inverse of its matrix, to 40 digits; what it keeps does not grow with the steps."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch

from ledger.mechanisms.correlated.strategies import Banded, Buffered, Strategy, square_root
from trainer_adapter.dpsgd.correlated.noise_recursion import BandedRecursion, BufferedRecursion, NoiseRecursion

STEPS = 13
STRATEGIES = (
    square_root(5),
    Banded((Fraction(1),) * 4),
    Banded((Fraction("0.9"), Fraction("0.3"))),
    Buffered((Fraction("0.99"), Fraction("0.6"), Fraction(0)), (Fraction("0.2"), Fraction("0.3"), Fraction("0.5"))),
    Buffered((Fraction("0.999999"),), (Fraction(1),)),
)


def dense(strategy: Strategy) -> mpmath.matrix:
    """C, entry by entry, at the precision of the caller."""
    if isinstance(strategy, Banded):
        known = [Fraction(1), *strategy.coefficients, *[Fraction(0)] * STEPS]
    else:
        assert isinstance(strategy, Buffered)
        pairs = [*zip(strategy.decays, strategy.scales, strict=True)]
        terms = [sum((scale * decay**row for decay, scale in pairs), Fraction(0)) for row in range(STEPS)]
        known = [Fraction(1), *terms]
    whole = mpmath.matrix(STEPS, STEPS)
    for row in range(STEPS):
        for place in range(row + 1):
            whole[row, row - place] = mpmath.mpf(known[place].numerator) / known[place].denominator
    return whole


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_noise_is_the_inverse_of_the_matrix_to_40_digits(strategy: Strategy) -> None:
    """Step after step, against the whole matrix, solved at once with 50 digits: what differs is float64's rounding."""
    independent = np.random.default_rng(1).normal(size=(STEPS, 3))
    noise = NoiseRecursion.of(strategy)
    found = [noise.following(torch.from_numpy(row.copy())).tolist() for row in independent]
    with mpmath.workdps(50):
        whole = dense(strategy)
        for column in range(3):
            solved = mpmath.lu_solve(whole, mpmath.matrix([float(one) for one in independent[:, column]]))
            assert max(abs(solved[row] - found[row][column]) for row in range(STEPS)) < 1e-13


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_kept_is_bounded(strategy: Strategy) -> None:
    """Bands less one, or buffers: as many vectors after a thousand steps as after a few."""
    noise = NoiseRecursion.of(strategy)
    for _ in range(1_000):
        noise.following(torch.ones(2, dtype=torch.float64))
    if isinstance(noise, BandedRecursion):
        assert isinstance(strategy, Banded)
        assert len(noise.past) == len(strategy.coefficients)
    else:
        assert isinstance(noise, BufferedRecursion)
        assert isinstance(strategy, Buffered)
        assert len(noise.buffers) == len(strategy.decays)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_vector_that_was_released_is_not_changed_afterwards(strategy: Strategy) -> None:
    """What a step added to its sum is not the memory that the next steps write to."""
    noise, released = NoiseRecursion.of(strategy), []
    for step in range(6):
        vector = noise.following(torch.full((2,), float(step + 1), dtype=torch.float64))
        released.append((vector, vector.clone()))
    assert all(torch.equal(vector, before) for vector, before in released)
