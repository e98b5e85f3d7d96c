"""The noise of a statistic, by OpenDP: three of its constructors, each with a proof document, and no other.

Sums and counts are ours: they are of integers, and their sensitivity is one table. OpenDP adds the noise, sampled
exactly from its cryptographic generator (OpenSSL's), and its own privacy map is evaluated before it draws: its value
may not exceed what was charged. A scale is rounded up, by less than 2^-29 of it. A result beyond 64 bits is cut off
there, which is computed from the noisy number.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ledger.accounting.rounding import float_up
from ledger.mechanisms.price_proofs import REPLACE
from ledger.mechanisms.statistic_prices import NoiseScale, Sensitivity, noise_of, sensitivity
from ledger.mechanisms.statistics import Statistic
from ledger.wire.malformed import Malformed

if TYPE_CHECKING:
    from opendp.mod import Measurement

PROVEN: Final = ("make_laplace", "make_gaussian", "make_noisy_top_k")
"""The constructors that are called; tests hold each to a proof document and to its map."""
_SLACK: Final = 1 + Fraction(1, 1 << 30)
"""More noise than is charged for, so that the library's map, which rounds up, stays within the price.

Less than ``SCALE_SLACK`` of :mod:`ledger.mechanisms.statistic_prices`, which thresholds count on.
"""
_WHOLE: Final = "i64"


def draw(statistic: Statistic, relation: str, totals: NDArray[np.int64]) -> NDArray[np.int64]:
    """The answer to a statistic: its totals with noise, or of a quantile the place of the candidate, shape (1,).

    Raises:
        Malformed: if the library is not there or fails, or its map is beyond the price: nothing is drawn then.
    """
    from opendp.mod import OpenDPException

    measurement = measurement_of(statistic, relation)
    try:
        return np.array(measurement([int(total) for total in totals]), dtype=np.int64)
    except OpenDPException:
        rule = "was not drawn; OpenDP's message may quote a record"
        raise Malformed(f"statistics.{statistic.name}", rule) from None


def measurement_of(statistic: Statistic, relation: str) -> Measurement:
    """The library's measurement of a statistic, held to its price by the library's own map. Raises: Malformed."""
    made = _make_measurement(noise_of(statistic, relation))
    loss = made.map(distance_of(sensitivity(statistic), statistic, relation))
    price = statistic.epsilon if statistic.rho is None else statistic.rho
    if price is None or not math.isfinite(loss) or Fraction(loss) > price:
        raise Malformed(f"statistics.{statistic.name}", "would cost more by OpenDP's own map than was charged")
    return made


def distance_of(moved: Sensitivity, statistic: Statistic, relation: str, records: int = 1) -> float | int:
    """How far ``records`` changed records move the totals, in the metric of the statistic's noise, rounded up."""
    times = records * (2 if relation == REPLACE else 1)
    if statistic.rho is not None:
        return math.nextafter(math.sqrt(float_up(Fraction(times**2 * moved.l2_square))), math.inf)
    return times * (moved.scores or moved.l1)


def _make_measurement(noise: NoiseScale) -> Measurement:
    dp = _library()
    space = dp.vector_domain(dp.atom_domain(T=_WHOLE))
    if noise.laplace is not None:
        return dp.m.make_laplace(space, dp.l1_distance(T=_WHOLE), scale=float_up(noise.laplace * _SLACK))
    if noise.gaussian_square is not None:
        deviation = math.nextafter(math.sqrt(float_up(noise.gaussian_square * _SLACK)), math.inf)
        return dp.m.make_gaussian(space, dp.l2_distance(T="f64"), scale=deviation)
    assert noise.selection is not None
    scale = float_up(noise.selection * _SLACK)
    metric, measure = dp.linf_distance(T=_WHOLE), dp.max_divergence()
    return dp.m.make_noisy_top_k(space, metric, measure, k=1, scale=scale, negate=True)


def _library() -> Any:  # noqa: ANN401 - a module
    """OpenDP, whose every constructor needs this switch. Raises: Malformed."""
    try:
        import opendp.prelude as dp
    except ImportError:
        raise Malformed("statistics", "need OpenDP: install epsilon-ledger[statistics]") from None
    dp.enable_features("contrib")
    return dp
