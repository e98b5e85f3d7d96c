"""The search for strategies: its error is that of dense matrices, and its result better than what it began with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import approx_fprime

from ledger.mechanisms.correlated.strategies import Banded, Buffered, Strategy, square_root
from trainer_adapter.dpsgd.correlated.strategy_search import (
    OPTIMISED_STEPS_MAX,
    banded,
    banded_loss,
    buffered,
    buffered_loss,
    independent_error,
    prefix_error,
)

STEPS: Final = 48
Loss = Callable[[NDArray[np.float64], int], tuple[float, NDArray[np.float64]]]


def error_by_matrices(strategy: Strategy, bands: int, steps: int) -> float:
    """The root mean square of the rows of A C^-1 times the longest column of C's first ``bands`` rows, all dense."""
    if isinstance(strategy, Banded):
        known = [1.0, *map(float, strategy.coefficients), *[0.0] * steps][:steps]
    else:
        assert isinstance(strategy, Buffered)
        pairs = [(float(one), float(two)) for one, two in zip(strategy.decays, strategy.scales, strict=True)]
        known = [1.0, *(sum(scale * decay**row for decay, scale in pairs) for row in range(steps - 1))]
    matrix: NDArray[np.float64] = np.zeros((steps, steps))
    for row in range(steps):
        matrix[row, : row + 1] = known[row::-1]
    rows = np.tril(np.ones((steps, steps))) @ np.linalg.inv(matrix)
    return float(np.linalg.norm(matrix[:bands], axis=0).max() * np.sqrt((rows**2).sum() / steps))


def test_independent_noise_adds_up() -> None:
    """The mean over all steps of how many there were."""
    assert independent_error(STEPS) == pytest.approx(np.sqrt(np.mean(np.arange(1, STEPS + 1))))


@pytest.mark.parametrize("bands", [2, 8, 48])
def test_a_banded_strategy_is_better_than_the_square_root_by_dense_matrices(bands: int) -> None:
    """Its error is what it says, and no greater than that of the root, nor of independent noise."""
    found = banded(bands, STEPS)
    error = prefix_error(found, bands, STEPS)
    assert error == pytest.approx(error_by_matrices(found, bands, STEPS), rel=1e-9)
    assert error < prefix_error(square_root(bands), bands, STEPS) < independent_error(STEPS)


def test_no_step_in_any_direction_is_better() -> None:
    """The optimum of eight bands: a coefficient more or less never lowers the error by what nine decimals could not."""
    found = banded(8, 200)
    best = error_by_matrices(found, 8, 200)
    for place in range(7):
        for by in (-1e-3, 1e-3):
            moved = np.array([float(one) for one in found.coefficients])
            moved[place] += by
            assert _error(moved, 200) > best - 1e-7


def _error(coefficients: NDArray[np.float64], steps: int) -> float:
    """By dense matrices."""
    known = np.concatenate([[1.0], coefficients, np.zeros(steps)])[:steps]
    matrix = np.array(
        [[known[row - column] if row >= column else 0.0 for column in range(steps)] for row in range(steps)]
    )
    rows = np.tril(np.ones((steps, steps))) @ np.linalg.inv(matrix)
    return float(np.sqrt((known**2).sum() * (rows**2).sum() / steps))


@pytest.mark.parametrize(("loss", "size"), [(banded_loss, 9), (buffered_loss, 6), (banded_loss, 59)])
def test_the_gradient_is_that_of_the_error(loss: Loss, size: int) -> None:
    """Against differences."""
    raw = np.random.default_rng(3).normal(size=size)
    _, gradient = loss(raw, 60)
    numeric = approx_fprime(raw, lambda at: loss(at, 60)[0], 1e-7)
    assert np.allclose(gradient, numeric, atol=1e-6)


@pytest.mark.parametrize("steps", [2, 3, 48, 1_000])
def test_a_few_buffers_come_near_the_best_matrix_of_a_stream(steps: int) -> None:
    """By dense matrices: less error than the whole square root has, from as many buffers as the steps have digits."""
    found = buffered(steps)
    error = prefix_error(found, steps, steps)
    if steps < 100:
        assert error == pytest.approx(error_by_matrices(found, steps, steps), rel=1e-9)
    places = np.arange(1, steps)
    root = np.cumprod(np.concatenate([[1.0], (2 * places - 1) / (2 * places)]))
    assert error < float(np.sqrt((root**2).sum() * np.cumsum(root**2).mean()))
    assert len(found.decays) == max(1, np.ceil(np.log10(steps)))


def test_a_run_longer_than_the_search_takes_the_strategy_of_the_longest() -> None:
    """Its error is still that of the run itself."""
    long = 4 * OPTIMISED_STEPS_MAX
    found = banded(2, long)
    assert found == banded(2, OPTIMISED_STEPS_MAX)
    assert prefix_error(found, 2, long) < 0.75 * independent_error(long)
