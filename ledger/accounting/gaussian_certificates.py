"""Certificates of Gaussian differential privacy (GDP): a run is at most one Gaussian, but for a part of probability τ.

A mechanism whose hockey-stick curves keep H_e(P‖Q) <= τ + H_e(G_μ) at every e >= 0, for both orders of the pair, is
at most a Gaussian of parameter μ but for a part τ: adaptively, Σμ² and Σδ' add up (:mod:`ledger.filters.gaussian`).
Here H_e(G_μ) = Φ(-e/μ + μ/2) - e^e·Φ(-e/μ - μ/2) (Dong, Roth, Su 2022, Corollary 2.13).

A number that is searched for here may be checked on a machine whose arithmetic differs in its last places. A check
given, with the margins that make it sound: the noise of a distribution, ``MARGIN`` for a Gaussian's curve, half of
``PURE_MARGIN``. To issue takes ``Distribution.issued``, the others twice, and a grid of at least twice the width, whose
points are among those of the check. So every machine accepts it whose curves differ by no more than that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ledger.accounting import pld_mechanisms
from ledger.accounting.pld import NOISE_ISSUED, PART_ISSUED, POINTS_ISSUED, Distribution, GridTooLarge
from ledger.accounting.rounding import float_down, float_up
from ledger.mechanisms.mechanism import BlackBox, BoundedRange, GaussianPrivate, Mechanism, Pure
from ledger.mechanisms.price_proofs import REPLACE, require_priced
from ledger.wire.exact_numbers import NAT, ceil_units

if TYPE_CHECKING:
    import numpy as np

MARGIN: Final = 1e-14
"""The greatest error of the computed curve of a Gaussian."""
PURE_MARGIN: Final = 1e-12
"""Relatively, twice what logarithms of a normal tail may be off by."""
_MU_MAX: Final = 64.0
_BEYOND: Final = (2 * int(_MU_MAX)) ** 2 * NAT
"""Beyond every capacity."""
_PURE_MAX: Final = 600
_POINTS: Final = 2_000
"""Points of a search's grid, at least; twice as many of a check's."""
_LEAST: Final = 1e-6
"""A curve that ends sooner is looked at up to here."""
_COARSE, _INTERVAL = 1e-3, 1e-4


def exact_square(step: Mechanism, relation: str) -> int | None:
    """μ² of one step in units of 2^-40, rounded up, where no τ is needed for it; None where a certificate is.

    Gaussian noise: μ = sensitivity over deviation. Pure ε, and a black box but for its δ: the Gaussian of the same
    total variation, μ = 2·Φ⁻¹(e^ε/(1 + e^ε)).

    Raises:
        NotPriced: if there is no proof for this mechanism under this relation.
    """
    require_priced(step, relation, "gaussian")
    square, epsilon = _by_noise(step, relation), _as_pure(step)
    if square is not None:
        return square
    return None if epsilon is None else _of_pure(epsilon)


def exact_square_covers(step: Mechanism, relation: str, square: int) -> bool | None:
    """Whether one step is at most the Gaussian of this μ² (units of 2^-40); None where a certificate is needed.

    Raises:
        NotPriced: if there is no proof for this mechanism under this relation.
    """
    require_priced(step, relation, "gaussian")
    exact, epsilon = _by_noise(step, relation), _as_pure(step)
    if exact is not None:
        return square >= exact
    return None if epsilon is None else _covers_pure(epsilon, square)


def _by_noise(step: Mechanism, relation: str) -> int | None:
    """μ² of Gaussian noise without sampling, exactly."""
    k, inner = pld_mechanisms.ungrouped(step)
    if isinstance(inner, GaussianPrivate):
        return ceil_units(k * k * inner.mu_square)
    noise, scale = pld_mechanisms.unsampled_noise(inner), 2 * k if relation == REPLACE else k
    return None if noise is None else ceil_units((scale / noise) ** 2)


def _as_pure(step: Mechanism) -> Fraction | None:
    """The ε of what is pure, but for the δ of a black box."""
    k, inner = pld_mechanisms.ungrouped(step)
    return k * inner.epsilon if isinstance(inner, Pure | BoundedRange | BlackBox) else None


def _of_pure(epsilon: Fraction) -> int:
    if epsilon > _PURE_MAX:
        return _BEYOND
    low, high, target = 0.0, 2 * _MU_MAX, _log_half(epsilon, PURE_MARGIN)
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if _log_tail(middle) <= target else (middle, high)
    return ceil_units(Fraction(high) ** 2)


def _covers_pure(epsilon: Fraction, square: int) -> bool:
    if epsilon > _PURE_MAX:
        return square >= _BEYOND
    return _log_tail(_mu_down(square)) <= _log_half(epsilon, PURE_MARGIN / 2)


def _log_half(epsilon: Fraction, margin: float) -> float:
    """The log of 1/(1 + e^ε), less a margin: both halves of randomised response keep their total variation."""
    return -math.log1p(math.exp(float_up(epsilon))) * (1 + margin) - margin / 1_000


def _log_tail(mu: float) -> float:
    """The log of Φ(-μ/2)."""
    from scipy.special import log_ndtr

    return float(log_ndtr(-mu / 2))


def _mu_down(square: int) -> float:
    return math.nextafter(math.sqrt(square / NAT), 0.0)


@lru_cache(maxsize=4_096)
def certificate(step: Mechanism, relation: str, count: int, tau: Fraction) -> int | None:
    """The least μ² found for ``count`` steps together at this τ, in units of 2^-40; None if there is none.

    Evaluated again at the very number that is returned.

    Raises:
        NotPriced: if there is no proof for this mechanism under this relation.
    """
    require_priced(step, relation, "gaussian")
    curves = _curves(step, relation, count)
    if curves is None or curves.points > POINTS_ISSUED:
        return None
    holds = _test(curves, float_down(tau) - 2 * MARGIN, _POINTS, issuing=True)
    if holds is None:
        return None
    low, high = 0.0, 1 / 16
    while not holds(high):
        low, high = high, 2 * high
        if high > _MU_MAX:
            return None
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    units = ceil_units(Fraction(high) ** 2)
    while not holds(_mu_down(units)):
        units += 1 + (units >> 40)
    return units


@lru_cache(maxsize=4_096)
def certified(step: Mechanism, relation: str, count: int, tau: Fraction, square: int) -> bool:
    """Whether (μ², τ) is a certificate of ``count`` steps together, with μ² in units of 2^-40: any, not only the least.

    Raises:
        NotPriced: if there is no proof for this mechanism under this relation.
    """
    require_priced(step, relation, "gaussian")
    curves = _curves(step, relation, count)
    holds = None if curves is None else _test(curves, float_down(tau) - MARGIN, 2 * _POINTS, issuing=False)
    return holds is not None and square > 0 and holds(_mu_down(square))


def _curves(step: Mechanism, relation: str, count: int) -> Distribution | None:
    interval = _COARSE if pld_mechanisms.is_mixture(step) else _INTERVAL
    try:
        return pld_mechanisms.repeated(step, relation, count, interval)
    except GridTooLarge:
        return None


def _test(found: Distribution, delta: float, points: int, *, issuing: bool) -> Callable[[float], bool] | None:
    """Whether a μ covers the curve up to where it is below ``left`` by itself; None if it never is.

    Between two points the curve is at most its value at the left one, and a Gaussian's at least that at the right. The
    width is a power of two, so that a grid of more points has those of every other with fewer.
    """
    import numpy as np

    part, more = (PART_ISSUED * found.steps, (NOISE_ISSUED - 1) * found.noise) if issuing else (0.0, 0.0)
    if delta <= more or math.isinf(last := found.epsilon((delta - more) / (1 + part))):
        return None
    width = 2.0 ** (math.frexp(max(last, _LEAST) / points)[1] - 1)
    grid = np.arange(math.ceil(last / width) + 1) * width
    curve = (found.issued if issuing else found.curve)(grid[:-1])

    def holds(mu: float) -> bool:
        return bool(np.all(curve <= delta + _curve(grid[1:], mu)))

    return holds


def _curve(epsilon: Any, mu: float) -> np.ndarray:  # noqa: ANN401 - a float or an array of them
    """H_e(G_μ)."""
    import numpy as np
    from scipy.special import log_ndtr, ndtr

    return np.asarray(ndtr(-epsilon / mu + mu / 2) - np.exp(epsilon + log_ndtr(-epsilon / mu - mu / 2)))


@lru_cache(maxsize=4_096)
def gaussian_capacity(epsilon: Fraction, delta: Fraction) -> int:
    """The greatest μ² in units of 2^-40 for which a Gaussian keeps (ε, δ) with room for a check; 0 if there is none."""
    low, high, left = 0, int(_MU_MAX**2) * NAT, float_down(delta) - MARGIN
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _keeps(middle, float_down(epsilon), left) else (low, middle)
    return low


@lru_cache(maxsize=4_096)
def gaussian_keeps(epsilon: Fraction, delta: Fraction, square: int) -> bool:
    """Whether a Gaussian of this μ² (units of 2^-40) keeps (ε, δ)."""
    return square <= 0 or _keeps(square, float_down(epsilon), float_down(delta))


@lru_cache(maxsize=4_096)
def gaussian_epsilon(square: int, delta: Fraction) -> Fraction | None:
    """The least ε found that a Gaussian of this μ² (units of 2^-40) keeps at δ; None beyond 4,096 nat."""
    low, high = 0.0, 1.0
    if square == 0 or _keeps(square, 0.0, float_down(delta)):
        return Fraction(0)
    while not _keeps(square, high, float_down(delta)):
        low, high = high, 2 * high
        if high > _MU_MAX**2:
            return None
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _keeps(square, middle, float_down(delta)) else (middle, high)
    return Fraction(high)


def _keeps(square: int, epsilon: float, delta: float) -> bool:
    mu = math.nextafter(math.sqrt(square / NAT), math.inf)
    return float(_curve(epsilon, mu)) + MARGIN <= delta
