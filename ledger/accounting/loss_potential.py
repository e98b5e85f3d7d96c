"""The potential of a catalogue of steps: the most that an adaptive analyst can still reach with b ticks left.

    V_0(l) = (1 - e^(ε - l))+        V_b(l) = max{V_(b-1)(l), max_i E V_(b-c_i)(l + L_i)}

l is the loss so far, b the ticks left, c_i the price of a block of steps of type i, and L_i its loss; V is 1 at an
infinite loss. It is the value of the best adaptive strategy (dynamic programming, Bellman 1957), so everything that
stays within b ticks keeps (ε, V_b(0)), whatever it chooses, mixes and stops. It is computed for both orders of the
pair, on a lattice: laws are rounded up (:mod:`ledger.accounting.loss_lattice`), V is held constant below the lattice,
and above its greatest loss z it is 1 - (1 - V(z))·e^(z - l). Each expectation is one convolution by FFT. Its rounding,
and what laws differ by on other machines, are covered by a tolerance that every tick takes from δ.

Why V beyond z bounds what is reached there: as a function of x = e^-l, with straight lines between the points, V_0 is
convex and 1 at x = 0. E V(l + L) is then convex in x and at most 1 at x = 0, and a maximum of convex functions is
convex; so for x < e^-z it lies below the line from (0, 1) to its value at z. With 1 in place of that line V would not
be convex, and whatever moves a loss a little across z would cost ticks for nothing: a Laplace sum of b = 10 cost 37
where it costs 2.

**More costs no less.** E V(l + L) is an f-divergence of the pair with f = V, convex, so a post-processing has no more
of it. A run of n steps is one of every longer run, so what pays for the longer run pays for it: its own least price is
the least over all runs that it could be the beginning of.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ledger.accounting.loss_lattice import LatticeLaw

TOLERANCE: Final = 2**-19
"""The part of δ per tick, 0.4 % in all at most; an FFT of values up to 1 errs by a tenth of it at the least δ."""
PART_ISSUED: Final = 1e-6
"""The margin of δ for issued numbers: on another machine, which checks them, a law may differ in its last places."""
_BELOW_NAT: Final = 8.0
_ABOVE_NAT: Final = 15.0
_POINTS_LEAST: Final = 192
_POINTS_A_NAT: Final = 64
_CACHED: Final = 8_192
"""Points whose transforms fit a processor's cache: those of eight types at once take twice as long as one by one."""

Laws = tuple["LatticeLaw", "LatticeLaw"]


def lattice_step(epsilon: Fraction, coarser: int = 1) -> float:
    """The distance of two points of the lattice in nats; ε is one of its points.

    Args:
        epsilon: of the budget.
        coarser: how many times fewer points there are, for searches whose results are computed anew.
    """
    return float(epsilon) / -(-max(_POINTS_LEAST, math.ceil(_POINTS_A_NAT * epsilon)) // coarser)


class Potential:
    """V at every number of ticks that was needed, and at every point of the lattice."""

    def __init__(
        self, epsilon: Fraction, delta: Fraction, blocks: Sequence[tuple[Laws, int]], coarser: int = 1
    ) -> None:
        """Begin with V_0.

        Args:
            epsilon: of the budget; ``delta`` likewise.
            blocks: the laws of loss of a block of each type, and its price in ticks.
            coarser: of the lattice of these laws; see :func:`lattice_step`.
        """
        self.epsilon = epsilon
        self._tolerance = float(delta) * TOLERANCE
        self.step = lattice_step(epsilon, coarser)
        self._zero = math.ceil(_BELOW_NAT / self.step)
        points = self._zero + math.ceil((float(epsilon) + _ABOVE_NAT) / self.step) + 1
        losses = self.step * (np.arange(points) - self._zero)
        start = -np.expm1(np.minimum(0.0, float(epsilon) - losses))
        self._values = [np.stack([start, start])]
        self._law = _Transform([laws for laws, _ in blocks], points, self.step)
        self._prices = [price for _, price in blocks]
        # Of the newest tables, as far back as a block costs: every type takes its expectations of the same transforms.
        self._spectra = deque([self._law.spectrum(self._values[0])], max(self._prices))

    def at(self, ticks: int, loss: float = 0.0) -> float:
        """V at ``ticks`` and a loss so far of ``loss`` nats, with its tolerance; the greater of both orders."""
        place = min(len(self._values[0][0]) - 1, max(0, self._zero + math.ceil(loss / self.step - 1e-9)))
        return float(self._table(ticks)[:, place].max()) + ticks * self._tolerance

    def issued(self, ticks: int, loss: float = 0.0) -> float:
        """The same for issuing a number: it also bounds what :meth:`at` gives on other machines."""
        return self.at(ticks, loss) * (1 + PART_ISSUED) + ticks * self._tolerance

    def capacity(self, epsilon: Fraction, delta: Fraction, most: int) -> int:
        """The most ticks under which everything keeps (ε, δ), at most ``most``; ε at most that of the potential."""
        loss, bound = float(self.epsilon - epsilon), float(delta)
        ticks = 0
        while ticks < most and self.issued(ticks + 1, loss) <= bound:
            ticks += 1
        return ticks

    def bound(self, ticks: int, delta: Fraction) -> float | None:
        """The least ε that ``ticks`` keep at δ; None if it is beyond the lattice."""
        values = self._table(ticks).max(axis=0) + ticks * self._tolerance
        place = int(np.searchsorted(values, float(delta), side="right")) - 1
        return None if place < 0 else max(0.0, float(self.epsilon) - self.step * (place - self._zero) + 1e-9)

    def price(self, laws: Laws, most: int) -> int | None:
        """The fewest ticks that pay for a mechanism of these laws wherever up to ``most`` ticks are left; None if none.

        They pay if E V_(b-c)(l + L) <= V_b(l) for every l and every b from c to ``most``: then V along any order of
        charges is a supermartingale. More ticks pay whatever fewer pay.
        """
        expected = self._expected(laws)
        fewer = bisect_right(range(1, most + 1), x=False, key=lambda ticks: self._pays(expected, ticks, most, 1 / 8))
        return fewer + 1 if fewer < most else None

    def pays(self, laws: Laws, ticks: int, most: int) -> bool:
        """Whether ``ticks`` pay for a mechanism of these laws, by a part of their tolerance."""
        return self._pays(self._expected(laws), ticks, most, 1 / 2)

    def _expected(self, laws: Laws) -> Callable[[int], NDArray[np.float64]]:
        """E V_b(l + L) at each number of ticks b, computed once however many prices are tried."""
        law = _Transform([laws], len(self._values[0][0]), self.step)
        return cache(lambda ticks: law.greatest([(0, law.spectrum(self._table(ticks)))]))

    def _pays(self, expected: Callable[[int], NDArray[np.float64]], ticks: int, most: int, part: float) -> bool:
        slack = part * ticks * self._tolerance
        return all(bool(np.all(expected(left - ticks) <= self._table(left) + slack)) for left in range(ticks, most + 1))

    def _table(self, ticks: int) -> NDArray[np.float64]:
        """V at a number of ticks: one row for each order of the pair, one column for each point."""
        while len(self._values) <= ticks:
            budget, value = len(self._values), self._values[-1]
            before = [(place, self._spectra[-price]) for place, price in enumerate(self._prices) if price <= budget]
            if before:
                value = np.maximum(value, self._law.greatest(before))
            self._values.append(value)
            self._spectra.append(self._law.spectrum(value))
        return self._values[ticks]


class _Transform:
    """The laws of several blocks, transformed once, to take expectations of V at every point of the lattice."""

    def __init__(self, blocks: Sequence[Laws], points: int, step: float) -> None:
        from scipy import fft

        self._points, self._span = points, max(law.span for laws in blocks for law in laws)
        self._shrunk = np.exp(-step * np.arange(1, self._span + 1))
        self._length = fft.next_fast_len(points + 2 * self._span, real=True)
        wide = np.stack([[_padded(law, self._span) for law in laws] for laws in blocks])
        self._laws = np.conj(fft.rfft(wide, self._length))
        self._infinite = np.array([[[law.infinite] for law in laws] for laws in blocks])

    def spectrum(self, values: NDArray[np.float64]) -> NDArray[np.complex128]:
        """The transform of V in both orders: constant below the lattice, and on the line to 1 above it."""
        from scipy import fft

        padded = np.ones((2, self._length))
        padded[:, : self._span] = values[:, :1]
        end = self._span + self._points
        padded[:, self._span : end] = values
        padded[:, end : end + self._span] -= (1 - values[:, -1:]) * self._shrunk
        transformed: NDArray[np.complex128] = fft.rfft(padded)
        return transformed

    def greatest(self, before: Sequence[tuple[int, NDArray[np.complex128]]]) -> NDArray[np.float64]:
        """The greatest E V(l + L) of blocks, each of its own V, at every point l and in both orders; at most 1."""
        from scipy import fft

        reached = np.zeros((2, self._points))
        together = max(1, _CACHED // self._length)
        for some in (before[start : start + together] for start in range(0, len(before), together)):
            places = [place for place, _ in some]
            sums = fft.irfft(self._laws[places] * np.stack([spectrum for _, spectrum in some]), self._length)
            np.maximum(reached, (sums[:, :, : self._points] + self._infinite[places]).max(axis=0), out=reached)
        return np.minimum(reached, 1.0)


def _padded(law: LatticeLaw, span: int) -> NDArray[np.float64]:
    return np.pad(law.probabilities, span - law.span)
