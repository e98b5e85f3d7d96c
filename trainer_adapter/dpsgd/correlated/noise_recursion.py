"""Correlated noise, step after step: w_t = z_t - Σ c_i w_(t - i), which is C w = z solved from the top.

``ledger.mechanisms.correlated`` has C, and why its price holds. Coefficients are rounded down to float64, so the matrix
that is undone has no longer columns than the one that is priced. Rounding of the recursion itself changes w by parts in
10^15 of it, as the sum's does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque

from torch import Tensor

from ledger.mechanisms.correlated.strategies import Banded, Buffered, Strategy
from trainer_adapter.dpsgd.engine import float_below


class NoiseRecursion(ABC):
    """The noise of one run from independent normals. What later steps take back is kept, in memory alone."""

    @abstractmethod
    def following(self, independent: Tensor) -> Tensor:
        """The next w, from this step's z, float64, shape (n,); z is used up."""

    @staticmethod
    def of(strategy: Strategy) -> NoiseRecursion:
        """Of a run's beginning."""
        match strategy:
            case Banded():
                return BandedRecursion(strategy)
            case Buffered():
                return BufferedRecursion(strategy)
        raise TypeError(type(strategy).__name__)


class BandedRecursion(NoiseRecursion):
    """Keeps the last ``bands`` - 1 vectors w, as ``past``."""

    def __init__(self, strategy: Banded) -> None:
        """Of a run's beginning."""
        self._factors = [float_below(one) for one in strategy.coefficients]
        self.past: deque[Tensor] = deque(maxlen=len(self._factors))

    def following(self, independent: Tensor) -> Tensor:
        """As of any strategy."""
        for factor, past in zip(self._factors, reversed(self.past), strict=False):
            independent.sub_(past, alpha=factor)
        self.past.append(independent)
        return independent


class BufferedRecursion(NoiseRecursion):
    """Keeps Σ decays_j^(i - 1) w_(t - i) over all i, one of ``buffers`` each, and adds each w once."""

    def __init__(self, strategy: Buffered) -> None:
        """Of a run's beginning."""
        self._decays = [float_below(one) for one in strategy.decays]
        self._scales = [float_below(one) for one in strategy.scales]
        self.buffers: list[Tensor] = []

    def following(self, independent: Tensor) -> Tensor:
        """As of any strategy."""
        if not self.buffers:
            self.buffers = [independent.clone() for _ in self._decays]
            return independent
        for buffer, scale in zip(self.buffers, self._scales, strict=True):
            independent.sub_(buffer, alpha=scale)
        for buffer, decay in zip(self.buffers, self._decays, strict=True):
            buffer.mul_(decay).add_(independent)
        return independent
