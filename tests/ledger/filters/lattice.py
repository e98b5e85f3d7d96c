"""Mechanisms whose losses are whole steps of one lattice: laws, compositions and hockey-stick curves without search.

A mechanism is an ordered pair (P, Q), its output laws with the unit and without. What matters of it is the law of
the loss log P/Q under P, and of log Q/P under Q, each with what it reveals for sure: outputs that the other law
never gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, reduce
from itertools import pairwise
from math import exp, log
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from tests.ledger.filters.adversary import Mechanism

Array = NDArray[np.float64]
FEW = 12
NORMAL = NormalDist()


@dataclass(frozen=True, eq=False)
class Law:
    """Probability ``weights[i]`` of a loss of ``low + i`` steps, and ``sure`` of an infinite one."""

    low: int
    weights: Array
    sure: float = 0.0

    @property
    def high(self) -> int:
        """The greatest finite loss."""
        return self.low + len(self.weights) - 1

    @cached_property
    def few(self) -> list[tuple[int, float]]:
        """Places that have weight."""
        return [(int(place), float(self.weights[place])) for place in np.flatnonzero(self.weights)]

    def then(self, other: Law) -> Law:
        """Both, one after the other."""
        both = fftconvolve if min(len(self.few), len(other.few)) > FEW else np.convolve
        weights = np.maximum(both(self.weights, other.weights), 0.0)
        return Law(self.low + other.low, weights, 1 - (1 - self.sure) * (1 - other.sure))

    def times(self, count: int) -> Law:
        """So many, one after the other."""
        if count == 0:
            return Law(0, np.ones(1))
        half = self.times(count // 2)
        even = half.then(half) if count > 1 else half
        return even.then(self) if count % 2 else even

    def trimmed(self, mass: float) -> Law:
        """Without the tails that weigh less; what is cut is lost, so every δ computed from it is a lower bound."""
        below, above = np.cumsum(self.weights), np.cumsum(self.weights[::-1])
        first, last = int(np.searchsorted(below, mass)), int(np.searchsorted(above, mass))
        return Law(self.low + first, self.weights[first : len(self.weights) - last], self.sure)

    def delta(self, epsilon: float, step: float) -> float:
        """E[(1 - e^(ε - L))_+]."""
        return self.sure + float(self.weights @ payoff(epsilon, step, self.low, self.high))

    def expected(self, above: Array) -> Array:
        """E[V(l + L)], L finite, for each l; of values V from ``low`` below the first l to ``high`` above the last."""
        width = len(above) - len(self.weights) + 1
        if len(self.few) <= FEW:
            return sum((weight * above[at : at + width] for at, weight in self.few), np.zeros(width))
        reached: Array = np.clip(fftconvolve(above, self.weights[::-1], "valid"), 0.0, 1.0)
        return reached


def payoff(epsilon: float, step: float, low: int, high: int) -> Array:
    """(1 - e^(ε - l))_+ at every l from ``low`` to ``high`` steps."""
    losses = step * np.arange(low, high + 1)
    paid: Array = -np.expm1(np.minimum(0.0, epsilon - losses))
    return paid


@dataclass(frozen=True, eq=False)
class Pair:
    """An ordered pair on the lattice: its losses with the unit, and without it."""

    step: float
    forward: Law
    backward: Law

    @property
    def swapped(self) -> Pair:
        """The neighbours the other way round."""
        return Pair(self.step, self.backward, self.forward)

    def then(self, other: Pair) -> Pair:
        """Both, one after the other."""
        return Pair(self.step, self.forward.then(other.forward), self.backward.then(other.backward))

    def times(self, count: int) -> Pair:
        """So many, one after the other."""
        return Pair(self.step, self.forward.times(count), self.backward.times(count))

    def delta(self, epsilon: float) -> float:
        """The exact δ at ε, of both directions the greater."""
        return max(self.forward.delta(epsilon, self.step), self.backward.delta(epsilon, self.step))

    def epsilon(self, delta: float) -> float:
        """The least ε ≥ 0 that this keeps at δ, from above to twelve digits."""
        low, high = 0.0, self.step * max(self.forward.high, self.backward.high, 1)
        if self.delta(high) > delta:
            raise ValueError("no ε is kept at this δ")
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if self.delta(middle) <= delta else (middle, high)
        return high

    @classmethod
    def of(cls, step: float, low: int, weights: Array, sure: float) -> Pair:
        """From the law under P; the other direction by duality, q = p·e^-l."""
        forward = Law(low, weights, sure)
        other = (weights * np.exp(-step * np.arange(low, forward.high + 1)))[::-1]
        return cls(step, forward, Law(-forward.high, other, max(0.0, 1.0 - float(other.sum()))))


def on_lattice(mechanism: Mechanism, step: float) -> Pair:
    """An exact mechanism. Raises: ValueError, if a loss is not a whole number of steps."""
    return Pair(step, _law(mechanism, step), _law(mechanism.swapped, step))


def _law(mechanism: Mechanism, step: float) -> Law:
    sure, weights = 0.0, dict[int, float]()
    for p, q in mechanism.pairs:
        if p and not q:
            sure += float(p)
        elif p:
            loss = log(p / q) / step
            if abs(loss - round(loss)) > 1e-6:
                raise ValueError(f"a loss of {loss} steps is not on the lattice")
            weights[round(loss)] = weights.get(round(loss), 0.0) + float(p)
    low, high = min(weights, default=0), max(weights, default=0)
    return Law(low, np.array([weights.get(at, 0.0) for at in range(low, high + 1)]), sure)


def composed(library: Sequence[Pair], counts: Sequence[int]) -> Pair:
    """Each so many times."""
    return reduce(Pair.then, (one.times(count) for one, count in zip(library, counts, strict=True)))


def dominated(one: Law, other: Law, step: float, least: int | None = None) -> bool:
    """Whether H_e(one) ≤ H_e(other) at all e, or at those of at least ``least`` steps.

    Both curves are linear in e^e between the lattice's knots and beyond the outer ones, so the knots decide.
    """
    low, high = min(one.low, other.low) - 1, max(one.high, other.high)
    knots = range(low if least is None else max(least, low), high + 1)
    return all(one.delta(at * step, step) <= other.delta(at * step, step) + 1e-13 for at in knots)


def gaussian_delta(mu: float, e: float) -> float:
    """H_e of N(mu, 1) against N(0, 1) (Balle, Wang 2018, Theorem 8)."""
    return NORMAL.cdf(mu / 2 - e / mu) - exp(e) * NORMAL.cdf(-mu / 2 - e / mu)


def below_gaussian(curve: Sequence[tuple[float, float]], mu: float, tau: float) -> bool:
    """Whether H_e ≤ tau + H_e(G_mu) for all e ≥ 0, of a curve given at its knots, ascending from 0.

    Between two knots it is linear in t = e^e and the right side convex, with the slope -Φ(-mu/2 - e/mu):
    the difference is greatest where the slopes agree, or at a knot. Beyond the last it is constant.
    """
    if curve[-1][1] > tau or any(known > tau + gaussian_delta(mu, e) for e, known in curve):
        return False
    for (first, at_first), (last, at_last) in pairwise(curve):
        slope = (at_first - at_last) / (exp(last) - exp(first))
        if not 0.0 < slope < 1.0:
            continue
        e = -mu * (mu / 2 + NORMAL.inv_cdf(slope))
        if first < e < last and at_first - slope * (exp(e) - exp(first)) > tau + gaussian_delta(mu, e):
            return False
    return True


def certificate(laws: Sequence[Law], step: float, tau: float) -> float | None:
    """The least mu, from above, with which each law stays within tau of G_mu; None if mu ≤ 8 is not enough."""
    curves = [[(at * step, law.delta(at * step, step)) for at in range(max(law.high, 0) + 1)] for law in laws]
    low, high = 0.0, 8.0
    if not all(below_gaussian(curve, high, tau) for curve in curves):
        return None
    for _ in range(34):
        middle = (low + high) / 2
        fits = middle > 1e-6 and all(below_gaussian(curve, middle, tau) for curve in curves)
        low, high = (low, middle) if fits else (middle, high)
    return high


def tilted(weights: Sequence[tuple[int, int]], base: Fraction) -> Mechanism:
    """The mechanism with losses of so many steps of log(base), each weighed within its sign: exact.

    Losses above 0 and below it are mixed so that Q sums to one as P does.
    """
    ups = [(loss, Fraction(weight)) for loss, weight in weights if loss > 0]
    downs = [(loss, Fraction(weight)) for loss, weight in weights if loss < 0]
    still = sum((Fraction(weight) for loss, weight in weights if loss == 0), Fraction(0))
    gain = sum(weight * (1 - base**-loss) for loss, weight in ups)
    cost = sum(weight * (base**-loss - 1) for loss, weight in downs)
    # gain·x = cost·y makes the sum of q equal the sum of p.
    mixed = [(loss, weight * cost) for loss, weight in ups] + [(loss, weight * gain) for loss, weight in downs]
    mixed = [*mixed, (0, still * (cost + gain) / 2)] if still else mixed
    total = sum(weight for _, weight in mixed)
    return Mechanism(tuple((weight / total, weight / total * base**-loss) for loss, weight in mixed))
