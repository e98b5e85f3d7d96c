"""Certificates of Gaussian privacy: what a run is at most, as one Gaussian and a small part that loses everything.

A mechanism whose hockey-stick curves keep H_e(P‖Q) <= τ + H_e(G_μ) at every e >= 0, for both orders of the pair, is
at most a Gaussian of parameter μ but for a part τ: adaptively, Σμ² and Σδ' then add up (``rules/gaussian.py``).
Here H_e(G_μ) = Φ(-e/μ + μ/2) - e^e·Φ(-e/μ - μ/2) (Dong, Roth, Su 2022, Corollary 2.13).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ledger.accounting import distributions
from ledger.accounting.discretised import Distribution, Unwieldy
from ledger.accounting.rounding import float_down, float_up
from ledger.mechanism import BlackBox, FullBatchEpochs, Gaussian, Group, Mechanism, PoissonGaussian, Pure
from ledger.priced import REPLACE, require_priced
from ledger.units import NAT, ceil_units

if TYPE_CHECKING:
    import numpy as np

MARGIN: Final = 1e-14
"""What the computed curve of a Gaussian may be off by."""
_MU_MAX: Final = 64.0
_PURE_MAX: Final = 600
_POINTS: Final = 2_000
_COARSE, _INTERVAL = 1e-3, 1e-4


def exact_square(step: Mechanism, relation: str) -> int | None:
    """μ² of one step in units of 2^-40, rounded up, where no τ is needed for it; None where a certificate is.

    Gaussian noise: μ = sensitivity over deviation. Pure ε, and a black box but for its δ: the Gaussian of the same
    total variation, μ = 2·Φ⁻¹(e^ε/(1 + e^ε)).

    Raises:
        NotPriced: if there is no proof for this mechanism under this relation.
    """
    require_priced(step, relation, "gaussian")
    k, inner = (step.k, step.mechanism) if isinstance(step, Group) else (1, step)
    scale = 2 * k if relation == REPLACE else k
    match inner:
        case Gaussian() | FullBatchEpochs():
            return ceil_units((scale / inner.noise_multiplier) ** 2)
        case PoissonGaussian() if inner.probability == 1:
            return ceil_units((scale / inner.noise_multiplier) ** 2)
        case Pure() | BlackBox():
            return _of_pure(k * inner.epsilon)
        case _:
            return None


def _of_pure(epsilon: Fraction) -> int:
    from scipy.special import log_ndtr

    if epsilon > _PURE_MAX:
        return (2 * int(_MU_MAX)) ** 2 * NAT  # beyond every capacity
    # Both halves of randomised response keep their total variation: Φ(-μ/2) = 1/(1 + e^ε), least such μ.
    wanted = -math.log1p(math.exp(float_up(epsilon))) * (1 + 1e-12) - 1e-15
    low, high = 0.0, 2 * _MU_MAX
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if float(log_ndtr(-middle / 2)) <= wanted else (middle, high)
    return ceil_units(Fraction(high) ** 2)


@lru_cache(maxsize=4_096)
def certificate(step: Mechanism, relation: str, count: int, tau: Fraction) -> int | None:
    """The least μ² found for ``count`` steps together at this τ, in units of 2^-40; None if there is none.

    Evaluated again at the very number that is returned.

    Raises:
        NotPriced: if there is no proof for this mechanism under this relation.
    """
    require_priced(step, relation, "gaussian")
    try:
        found = distributions.repeated(step, relation, count, _COARSE if distributions.is_mixture(step) else _INTERVAL)
    except Unwieldy:
        return None
    left = float_down(tau) - MARGIN
    if left <= 0 or math.isinf(last := found.epsilon(left)):
        return None
    holds = _test(found, last, left)
    low, high = 0.0, 1 / 16
    while not holds(high):
        low, high = high, 2 * high
        if high > _MU_MAX:
            return None
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    units = ceil_units(Fraction(high) ** 2)
    while not holds(math.nextafter(math.sqrt(units / NAT), 0.0)):
        units += 1 + (units >> 40)
    return units


def _test(found: Distribution, last: float, left: float) -> Callable[[float], bool]:
    """Whether a μ covers the curve on [0, last]; from ``last`` on the curve is below τ by itself.

    Between two points the curve is at most its value at the left one, and a Gaussian's at least that at the right.
    """
    import numpy as np

    grid = np.linspace(0.0, last, _POINTS + 1)
    curve = found.curve(grid[:-1])

    def holds(mu: float) -> bool:
        return bool(np.all(curve <= left + _curve(grid[1:], mu)))

    return holds


def _curve(epsilon: Any, mu: float) -> np.ndarray:  # noqa: ANN401 - a float or an array of them
    """H_e(G_μ)."""
    import numpy as np
    from scipy.special import log_ndtr, ndtr

    return np.asarray(ndtr(-epsilon / mu + mu / 2) - np.exp(epsilon + log_ndtr(-epsilon / mu - mu / 2)))


@lru_cache(maxsize=4_096)
def gaussian_capacity(epsilon: Fraction, delta: Fraction) -> int:
    """The greatest μ² in units of 2^-40 for which a Gaussian keeps (ε, δ); 0 if there is none."""
    low, high = 0, int(_MU_MAX**2) * NAT
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _keeps(middle, float_down(epsilon), float_down(delta)) else (low, middle)
    return low


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
