"""An analyst who picks each next mechanism after seeing every output, computed exactly by backward induction.

A mechanism is a pair of finite distributions (P, Q): its output laws on two neighbours. The analyst stops when
it likes, and may ask for whatever the rule still admits. What it can reach at most is

    max over strategies of E_P[(1 - e^(ε - L))_+],   L the sum of log P/Q along the way,

which is the worst H_ε(P‖Q) of any adaptive composition that the rule lets through; swapped, H_ε(Q‖P).
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import exp, inf, log

from ledger.mechanisms.loss import Loss
from ledger.wire.exact_numbers import ceil_units
from tests.ledger.accounting.exact import divergence

Admits = Callable[[tuple[int, ...]], bool]
"""Whether a rule admits having run mechanism i so many times, for each i."""


@dataclass(frozen=True)
class Mechanism:
    """Pairs of probabilities, one per output, exact."""

    pairs: tuple[tuple[Fraction, Fraction], ...]

    @property
    def swapped(self) -> "Mechanism":
        """The neighbours the other way round."""
        return Mechanism(tuple((q, p) for p, q in self.pairs))

    def outputs(self) -> list[tuple[float, float]]:
        """Each output's probability under P, and its loss."""
        return [(float(p), log(p / q) if q else inf) for p, q in self.pairs if p]

    def loss(self, orders: tuple[int, ...]) -> Loss:
        """Its price at each order: the greater of both directions, in loss units rounded up; and no slack."""
        finite, infinite = [], []
        for order in orders:
            both = [divergence(order, one.pairs) for one in (self, self.swapped)]
            known = [rho for rho in both if rho is not None]
            finite.append(ceil_units(max(known)) if len(known) == 2 else 0)
            infinite.append(int(len(known) < 2))
        return Loss((*finite, 0), (*infinite, 0))


Library = tuple[Mechanism, ...]


def worst(library: Library, admits: Admits, epsilon: float, depth: int) -> float:
    """The greatest δ that any adaptive analyst reaches, of both directions."""
    forward = _worst(tuple(tuple(one.outputs()) for one in library), admits, epsilon, depth)
    backward = _worst(tuple(tuple(one.swapped.outputs()) for one in library), admits, epsilon, depth)
    return max(forward, backward)


def _worst(library: tuple[tuple[tuple[float, float], ...], ...], admits: Admits, epsilon: float, depth: int) -> float:
    # Losses are met again by many orders of the same outputs, so they are kept to twelve digits.
    @cache
    def allowed(counts: tuple[int, ...]) -> bool:
        return admits(counts)

    @cache
    def value(loss: float, counts: tuple[int, ...], left: int) -> float:
        best = -min(0.0, _expm1(epsilon - loss))
        if left == 0 or best == 1.0:
            return best
        for place, outputs in enumerate(library):
            after = (*counts[:place], counts[place] + 1, *counts[place + 1 :])
            if allowed(after):
                reached = sum(p * value(round(loss + step, 12), after, left - 1) for p, step in outputs)
                best = max(best, reached)
        return best

    return value(0.0, (0,) * len(library), depth)


def _expm1(exponent: float) -> float:
    return exp(exponent) - 1 if exponent < 700 else inf


def fixed(library: Library, counts: tuple[int, ...], epsilon: float) -> float:
    """The exact δ at ε of running each mechanism so many times, chosen beforehand: what a PLD tells."""
    run = tuple(one for one, times in zip(library, counts, strict=True) for _ in range(times))
    return max(
        _fixed(tuple(tuple(one.outputs()) for one in run), epsilon),
        _fixed(tuple(tuple(one.swapped.outputs()) for one in run), epsilon),
    )


def _fixed(run: tuple[tuple[tuple[float, float], ...], ...], epsilon: float) -> float:
    law = {0.0: 1.0}
    for outputs in run:
        after: dict[float, float] = {}
        for loss, weight in law.items():
            for p, step in outputs:
                total = round(loss + step, 12)
                after[total] = after.get(total, 0.0) + weight * p
        law = after
    return sum(-min(0.0, _expm1(epsilon - loss)) * weight for loss, weight in law.items())
