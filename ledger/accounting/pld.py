"""A discretised privacy loss distribution (PLD): composition within bounds, and upper bounds on its hockey-stick curve.

Convolutions of two are dp_accounting's. Those of equal ones are as its own, but by one transform of real numbers and
with moments that serve every count, in a third of its time or less. The curves are evaluated here, from sums over the
tail. With losses l of probability p, the δ at ε is Σ_{l>ε} p·(1 - e^(ε-l)) plus the mass at infinity, the greater of
both orders of the pair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    import numpy as np
    from dp_accounting.pld.pld_pmf import DensePLDPmf
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
    from numpy.typing import NDArray

POINTS_MAX: Final = 2_000_000
"""Points of a grid, and so the length of a convolution: seconds, and some hundred megabytes."""
POINTS_ISSUED: Final = POINTS_MAX - POINTS_MAX // 1_000
"""The limit for issued numbers is lower, since grids end in floats: no other machine then exceeds its limit."""
NOISE: Final = 1e-12
NOISE_PER_STEP: Final = 1e-15
NOISE_ISSUED: Final = 8
PART_ISSUED: Final = 1e-9
"""What a δ has more by which a number is issued than one by which it is checked: so many times the noise in all, and
this part of it a step. With every exponential, logarithm, normal tail and transform off by two units in its last place,
a δ and its noise were seen to grow by 5.6 times the noise, and by 3e-10 of δ a step: the library's cells are
differences of its curve, and what rounding leaves there below 0 it takes for 0."""
_HAIR: Final = 1e-9
_TAIL: Final = 1e-15
"""Probability that a composition may move to infinity."""
_ORDERS: Final = 20
"""The number of orders on each side at which Chernoff's bound is evaluated, in parts of one over the points."""


class GridTooLarge(ArithmeticError):  # noqa: N818 - a limit, not a mistake
    """A discretisation grid with more points than the limit; nothing is computed from it."""


class OutputsNotFound(ArithmeticError):  # noqa: N818 - a limit, not a mistake
    """The outputs of a grid of losses were not found: a large group's, at much noise. A charge has no price then.

    It has none in books of before, whose refusals are decided again at replay; a report goes by another accountant.
    """


def require_points(points: float) -> None:
    """Raises: GridTooLarge, if a grid would have too many points."""
    if not points <= POINTS_MAX:
        raise GridTooLarge(f"a grid of {points:.0f} points is more than the {POINTS_MAX} allowed")


@dataclass(frozen=True, slots=True)
class _Tail:
    """One order of the pair: positive losses, ascending, and for each the sums over it and all above."""

    losses: np.ndarray
    mass: np.ndarray
    discounted: np.ndarray
    infinite: float

    def delta(self, epsilon: np.ndarray) -> np.ndarray:
        import numpy as np

        first = np.searchsorted(self.losses, epsilon, side="right")
        # Where e^ε is infinite, it is no number: see Distribution.epsilon.
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(self.infinite + self.mass[first] - np.exp(epsilon) * self.discounted[first])

    def epsilon(self, delta: float) -> float:
        """The ε at which the curve, linear in e^ε between two losses, meets δ."""
        import numpy as np

        if delta <= self.infinite:
            return math.inf
        # Where e^l is infinite, nothing of the discounted mass is left, and the δ is not looked for there.
        with np.errstate(over="ignore", invalid="ignore"):
            at = self.infinite + self.mass[1:] - np.exp(self.losses) * self.discounted[1:]
        place = int(np.argmax(at <= delta)) if len(at) else 0
        above = self.infinite + self.mass[place] - delta
        below = self.discounted[place]
        return max(0.0, math.log(above / below)) if above > 0 and below > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Moments:
    """A law's moment generating function at a few orders, as logarithms.

    Attributes:
        points: of its grid.
        at: by order.
    """

    points: int
    at: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, law: NDArray[np.float64]) -> Moments:
        """The moments of a law at the places 0, 1, ..."""
        import numpy as np

        base = np.exp(np.arange(len(law)) / len(law))
        found = []
        for sign, factor in ((1, base), (-1, 1 / base)):
            weighted = law.copy()
            for order in range(1, _ORDERS + 1):
                # A scalar product would go to every core.
                weighted *= factor
                moment = float(weighted.sum())
                found.append((sign * order / len(law), math.log(moment) if moment > 0 else -math.inf))
        return cls(len(law), tuple(found))

    def ends(self, count: int) -> tuple[int, int]:
        """The places between which the sum of ``count`` draws lies, but with a probability of 1e-15."""
        low, high = 0, (self.points - 1) * count
        for order, moment in self.at:
            bound = (count * moment + math.log(2 / _TAIL)) / order
            if not math.isfinite(bound):
                continue
            low, high = (low, min(high, math.ceil(bound))) if order > 0 else (max(low, math.floor(bound)), high)
        return low, high


@dataclass(frozen=True)
class Distribution:
    """Both orders of the pair (one, where they are equal), of ``steps`` steps in all.

    Attributes:
        points: of the longest grid on the way to it.
    """

    laws: tuple[DensePLDPmf, ...]
    steps: int
    points: int

    @classmethod
    def of(cls, pld: PrivacyLossDistribution) -> Self:
        """One step's distribution as dp_accounting computes it."""
        # The version is pinned, and nothing public gives the laws.
        laws = [pld._pmf_remove] if pld._symmetric else [pld._pmf_remove, pld._pmf_add]  # noqa: SLF001 - no public name
        for law in laws:
            if hasattr(law, "_loss_probs"):
                places = list(law._loss_probs)  # noqa: SLF001 - as above
                require_points(max(places) - min(places) + 1)
        dense = tuple(law.to_dense_pmf() for law in laws)
        return cls(dense, 1, max(law.size for law in dense))

    def self_compose(self, count: int) -> Distribution:
        """The composition of ``count`` copies. Raises: GridTooLarge."""
        if count == 1:
            return self
        for law in self.laws:
            require_points(law.size)
        ends = [moments.ends(count) for moments in self._moments]
        points = max(
            self.points, *(max(law.size, end - start + 1) for law, (start, end) in zip(self.laws, ends, strict=True))
        )
        require_points(points)
        laws = tuple(_self_composed(law, count, *places) for law, places in zip(self.laws, ends, strict=True))
        return Distribution(laws, self.steps * count, points)

    @cached_property
    def _moments(self) -> tuple[Moments, ...]:
        """The moments of each law, for every number of copies."""
        return tuple(Moments.of(law._probs) for law in self.laws)  # noqa: SLF001 - as above

    def compose(self, other: Distribution) -> Distribution:
        """The composition with another. Raises: GridTooLarge."""
        width = max(len(self.laws), len(other.laws))
        pairs = list(zip(self._both(width), other._both(width), strict=True))
        points = max(self.points, other.points, *(first.size + second.size for first, second in pairs))
        require_points(points)
        return Distribution(
            tuple(first.compose(second, _TAIL) for first, second in pairs), self.steps + other.steps, points
        )

    def _both(self, width: int) -> tuple[DensePLDPmf, ...]:
        return self.laws * width if len(self.laws) < width else self.laws

    @cached_property
    def noise(self) -> float:
        """The greatest error of a δ by rounding: truncation in compositions, and the error of convolutions by FFT.

        Probabilities that came out negative, and mass that is missing, show how large that error is.
        """
        lost = 0.0
        for law in self.laws:
            probabilities, infinite = law._probs, float(law._infinity_mass)  # noqa: SLF001 - as above
            negative = -float(probabilities[probabilities < 0].sum()) + max(0.0, -infinite)
            lost = max(lost, 2 * negative + max(0.0, 1.0 - infinite - float(probabilities.sum())))
        return NOISE + NOISE_PER_STEP * self.steps + lost

    @cached_property
    def _tails(self) -> tuple[_Tail, ...]:
        return tuple(_tail(law) for law in self.laws)

    def curves(self, epsilon: np.ndarray) -> tuple[np.ndarray, ...]:
        """The hockey-stick curve of each order of the pair (one, where they are alike), at each ε >= 0, in nats."""
        return tuple(tail.delta(epsilon) + self.noise for tail in self._tails)

    def curve(self, epsilon: np.ndarray) -> np.ndarray:
        """The greater of them: an upper bound on the δ at each ε >= 0."""
        import numpy as np

        return np.asarray(np.max(self.curves(epsilon), axis=0))

    def issued(self, epsilon: np.ndarray) -> np.ndarray:
        """Upper bounds for issuing a number: they also bound what :meth:`curve` gives on other machines."""
        return self.curve(epsilon) * (1 + PART_ISSUED * self.steps) + (NOISE_ISSUED - 1) * self.noise

    def delta(self, epsilon: float) -> float:
        """An upper bound on the δ at ε."""
        import numpy as np

        return float(self.curve(np.asarray([epsilon]))[0])

    def epsilon(self, delta: float) -> float:
        """An upper bound on the ε at δ, at which the curve was evaluated; infinite where none is proven."""
        left = delta - self.noise
        found = max(tail.epsilon(left) for tail in self._tails) if left > 0 else math.inf
        step = _HAIR / 10
        # Beyond 709 nat e^ε is infinite and the curve no number: nothing is proven there.
        while math.isfinite(found) and not self.delta(found) <= delta:
            found, step = found + step, 2 * step
        return found


def self_convolved(law: NDArray[np.float64], count: int, low: int, high: int) -> NDArray[np.float64]:
    """The law of the sum of ``count`` draws at the places from ``low`` to ``high``; what lies beyond is added to it."""
    import numpy as np
    from scipy import fft

    length = high - low + 1
    size = fft.next_fast_len(max(length, len(law)), real=True)
    whole = fft.irfft(fft.rfft(law, size) ** count, size)
    return np.asarray(np.roll(whole, -low)[:length])


def _self_composed(law: DensePLDPmf, count: int, low: int, high: int) -> DensePLDPmf:
    """The library's own self-composition, by transforms of real numbers, from the place ``low`` to ``high``."""
    from dp_accounting.pld.pld_pmf import DensePLDPmf

    lower = law._lower_loss * count + low  # noqa: SLF001 - as above
    infinite = _TAIL - math.expm1(count * math.log1p(-law._infinity_mass))  # noqa: SLF001 - as above
    probabilities = self_convolved(law._probs, count, low, high)  # noqa: SLF001 - as above
    return DensePLDPmf(law._discretization, lower, probabilities, infinite, law._pessimistic_estimate)  # noqa: SLF001 - as above


def _tail(law: Any) -> _Tail:  # noqa: ANN401 - the library's type
    import numpy as np

    losses = (np.arange(law.size) + law._lower_loss) * law._discretization  # noqa: SLF001 - as above
    positive = losses > 0
    losses, mass = losses[positive], law._probs[positive]  # noqa: SLF001 - as above
    return _Tail(losses, _above(mass), _above(mass * np.exp(-losses)), max(0.0, float(law._infinity_mass)))  # noqa: SLF001 - no public name


def _above(values: np.ndarray) -> np.ndarray:
    """For each place the sum from there on, and 0 behind the last."""
    import numpy as np

    return np.append(np.cumsum(values[::-1])[::-1], 0.0)
