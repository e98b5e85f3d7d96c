"""Strategies of correlated noise, optimised for a number of steps: the least error of prefix sums at one price.

The weights of a model that is trained by SGD are a prefix sum of all gradients, so what its noise does is measured by
the rows of A C^-1, where A sums: an error of σ L |c| times the root mean square of their norms. Both factors follow
from the coefficients alone: with b = 1 / ((1 - x) c(x)), row t has the norm² of b's first t coefficients. Nothing here
looks at data, or costs privacy, or has to be right: the price is computed from the exact numbers that a plan states.

Power series are inverted by Newton's steps and fast Fourier transforms, which is stable since no coefficient of the
inverse is beyond 1. L-BFGS goes down the exact gradient: of a banded strategy (Denisov et al. 2022; McKenna 2024) from
the square root, of a buffered one (Dvijotham et al. 2024) from a sum of decays near t^(-1/2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ledger.mechanisms.correlated.strategies import BUFFERS_MAX, Banded, Buffered, Strategy

Values: TypeAlias = NDArray[np.float64]

PLACES: Final = 10**9
"""Coefficients have nine decimals: a plan stays short, and the error is that of the optimum to six digits."""
OPTIMISED_STEPS_MAX: Final = 16_384
"""The most steps that a strategy is optimised for: longer runs take that of so many."""
_RAW_LIMIT: Final = 14.0
"""Shares are searched between e^-14 and 1 - e^-14."""


def independent_error(steps: int) -> float:
    """The error of prefix sums of independent noise, over σ L."""
    return math.sqrt((steps + 1) / 2)


def prefix_error(strategy: Strategy, bands: int, steps: int) -> float:
    """The same under a strategy whose contributions reach ``bands`` rows."""
    if isinstance(strategy, Banded):
        series = np.zeros(steps)
        known = [1.0, *map(float, strategy.coefficients)][:steps]
        series[: len(known)] = known
    else:
        assert isinstance(strategy, Buffered)
        decays, scales = (np.array([*map(float, part)]) for part in (strategy.decays, strategy.scales))
        series = np.concatenate([[1.0], _powers(decays, steps - 1) @ scales])
    return math.sqrt(float(strategy.column_square(bands)) * _mean_square(np.cumsum(_inverse(series))))


def banded(bands: int, steps: int) -> Banded:
    """The banded strategy of least error in ``steps`` steps."""
    places = np.arange(1, bands)
    ratios = (2 * places - 1) / (2 * places)
    found = _minimum(banded_loss, np.log(ratios / (1 - ratios)), steps)
    return Banded(tuple(Fraction(round(float(one) * PLACES), PLACES) for one in np.cumprod(_share(found))))


def buffered(steps: int) -> Buffered:
    """A buffered strategy of little error in ``steps`` steps, of about as many buffers as they have digits."""
    count = min(BUFFERS_MAX, max(1, math.ceil(math.log10(steps))))
    left = min(steps, OPTIMISED_STEPS_MAX) ** (-(np.arange(count) + 0.5) / count)
    # Of t^(-1/2) as a sum of decays: each buffer's part is the root of how fast it forgets; a half of c_0 in all.
    weights = np.sqrt(left) / np.sqrt(left).sum()
    raw = _minimum(buffered_loss, np.concatenate([np.log(left / (1 - left)), np.log(weights)]), steps)
    decays, scales = _buffers(raw)
    # Rounded down, so that what is below 1 stays so.
    decimals = ((Fraction(int(float(one) * PLACES), PLACES) for one in part) for part in (decays, scales))
    return Buffered(*map(tuple, decimals))


def _minimum(loss: Callable[[Values, int], tuple[float, Values]], start: Values, steps: int) -> Values:
    from scipy.optimize import minimize

    limits = [(-_RAW_LIMIT, _RAW_LIMIT)] * len(start)
    options = {"maxiter": 1_000, "maxfun": 2_000, "ftol": 1e-12, "gtol": 1e-8}
    length = (min(steps, OPTIMISED_STEPS_MAX),)
    found = minimize(loss, start, args=length, method="L-BFGS-B", jac=True, bounds=limits, options=options)
    raw: Values = found.x
    return raw


def _share(raw: Values) -> Values:
    share: Values = 1 / (1 + np.exp(-raw))
    return share


def _buffers(raw: Values) -> tuple[Values, Values]:
    """Decays and scales; all scales are less than 1 together."""
    half = len(raw) // 2
    weights = np.exp(raw[half:])
    return 1 - _share(raw[:half]), weights / (1 + weights.sum())


def _powers(decays: Values, rows: int) -> Values:
    """Each decay to the power of each row, shape (rows, buffers)."""
    powers: Values = decays[None, :] ** np.arange(rows)[:, None]
    return powers


def banded_loss(raw: Values, steps: int) -> tuple[float, Values]:
    """The logarithm of the error, and its gradient; c_i is the product of the first i shares."""
    share = _share(raw)
    falling = np.cumprod(share)
    series = np.zeros(steps)
    series[0], series[1 : 1 + len(falling)] = 1, falling[: steps - 1]
    loss, slopes = _loss(series)
    own = np.zeros(len(falling))
    own[: steps - 1] = slopes[1 : 1 + len(falling)]
    return loss, (1 - share) * np.cumsum((own * falling)[::-1])[::-1]


def buffered_loss(raw: Values, steps: int) -> tuple[float, Values]:
    """The same, by how fast each buffer forgets and its scale."""
    decays, scales = _buffers(raw)
    powers = _powers(decays, steps - 1)
    loss, slopes = _loss(np.concatenate([[1.0], powers @ scales]))
    of_scales = slopes[1:] @ powers
    moved = np.arange(1, steps - 1)[:, None] * powers[:-1]
    of_decays = scales * (slopes[2:] @ moved)
    return loss, np.concatenate([-decays * (1 - decays) * of_decays, scales * (of_scales - scales @ of_scales)])


def _loss(series: Values) -> tuple[float, Values]:
    """The logarithm of the error of C with these coefficients, and its slope by each of them."""
    steps = len(series)
    inverse = _inverse(series)
    row = np.cumsum(inverse)
    weighted = (steps - np.arange(steps)) / steps * row
    mean, square = float(weighted @ row), float(series @ series)
    # d row / d c_i is -row / c, moved down by i.
    back = _product(row, inverse, steps)
    moved = _product(weighted[::-1], back, steps)[::-1]
    return math.log(square * mean) / 2, series / square - moved / mean


def _mean_square(row: Values) -> float:
    """The mean over t of the squared norm of row t of A C^-1, whose first column is ``row``."""
    steps = len(row)
    return float(((steps - np.arange(steps)) / steps) @ row**2)


def _inverse(series: Values) -> Values:
    """The first coefficients of 1 / c(x), by Newton's steps; all of them lie in [-1, 1]."""
    found = np.ones(1)
    while len(found) < len(series):
        size = min(2 * len(found), len(series))
        rest = -_product(series[:size], found, size)
        rest[0] += 2
        found = _product(found, rest, size)
    return found


def _product(one: Values, other: Values, size: int) -> Values:
    """The first coefficients of a product of power series."""
    length = 1 << (len(one) + len(other) - 1).bit_length()
    product: Values = np.fft.irfft(np.fft.rfft(one, length) * np.fft.rfft(other, length), length)[:size]
    return product
