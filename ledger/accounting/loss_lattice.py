"""Privacy losses on one lattice: a mechanism's two laws of loss, rounded up so that they dominate the exact ones.

The hockey-stick curve of a pair (P, Q) at e^ε, known as an upper bound at the points of the lattice, is connected by
straight lines in e^ε (connect-the-dots: Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022). The curve is convex there,
so the lines lie above it, and below the least point the line to H(0) = 1 does. Where rounding makes a probability
negative it is taken for 0, which raises the curve again. At ε < 0 the curve of (P, Q) follows from that of (Q, P):
H_ε(P, Q) = 1 - e^ε + e^ε·H_-ε(Q, P).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ledger.accounting.pld import Distribution

SPAN_NAT: Final = 12.0
"""The greatest finite loss of a law; what is beyond counts as infinite."""


@dataclass(frozen=True, slots=True, eq=False)
class LatticeLaw:
    """A law of loss: ``probabilities[i]`` of a loss of ``i - span`` points, and the probability of an infinite one."""

    probabilities: NDArray[np.float64]
    infinite: float

    @property
    def span(self) -> int:
        """The greatest finite loss, in points."""
        return len(self.probabilities) // 2


def lattice_laws(distribution: Distribution, step: float) -> tuple[LatticeLaw, LatticeLaw]:
    """The laws of loss of both orders of a pair on the lattice of whole multiples of ``step`` nats."""
    losses = step * np.arange(math.ceil(SPAN_NAT / step) + 1, dtype=np.float64)
    curves = distribution.curves(losses)
    first, last = curves[0], curves[-1]
    return _connected(losses, first, last), _connected(losses, last, first)


def _connected(losses: NDArray[np.float64], above: NDArray[np.float64], swapped: NDArray[np.float64]) -> LatticeLaw:
    """The law whose curve joins the dots: ``above`` at each loss >= 0, and below 0 by the curve of the swapped pair."""
    step = float(losses[1])
    shrunk = np.exp(-losses[:0:-1])
    deltas = np.concatenate([1 - shrunk + shrunk * swapped[:0:-1], above])
    deltas = np.minimum.accumulate(np.clip(deltas, 0.0, 1.0))
    change = np.diff(deltas)
    probabilities = np.empty_like(deltas)
    probabilities[0] = 1 - deltas[0] + change[0] / math.expm1(step)
    probabilities[1:-1] = (change[1:] - change[:-1] * math.exp(step)) / math.expm1(step)
    probabilities[-1] = change[-1] / math.expm1(-step)
    return LatticeLaw(np.maximum(probabilities, 0.0), float(deltas[-1]))
