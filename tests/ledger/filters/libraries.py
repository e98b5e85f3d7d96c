"""Mechanism libraries on the lattice of one factor: losses are whole powers of it, probabilities exact."""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from math import log

from ledger.mechanisms.loss import Loss
from tests.ledger.filters.adversary import Library, Mechanism
from tests.ledger.filters.game import Run
from tests.ledger.filters.lattice import Pair, composed, on_lattice, tilted

BASE = Fraction(11, 10)
STEP = log(BASE)


def response(steps: int, base: Fraction = BASE) -> Mechanism:
    """Randomised response with a loss of so many steps."""
    truth = base**steps / (1 + base**steps)
    return Mechanism(((truth, 1 - truth), (1 - truth, truth)))


def spike(probability: Fraction, steps: int, base: Fraction = BASE) -> Mechanism:
    """A loss of ``steps`` with that probability; else a loss of one step down, or none, mixed so that it sums up."""
    # Q lacks p·(1 - base^-steps), and a step down gives back (base - 1) of its weight.
    down = probability * (1 - base**-steps) / (base - 1)
    rest = 1 - probability - down
    return Mechanism(((probability, probability * base**-steps), (down, down * base), (rest, rest)))


def pairs(library: Library, step: float = STEP) -> list[Pair]:
    """All of a library on the lattice."""
    return [on_lattice(one, step) for one in library]


def thinned(mechanism: Mechanism, share: Fraction) -> Mechanism:
    """Executed with this probability; else an output that says nothing."""
    return Mechanism((*((share * p, share * q) for p, q in mechanism.pairs), (1 - share, 1 - share)))


def random_mechanism(source: random.Random, width: int = 6) -> Mechanism:
    """One or two losses above 0 and as many below it, often one of 0; in a tenth of all cases P or Q leaks."""
    ups = source.sample(range(1, width + 1), source.choice([1, 1, 2]))
    downs = source.sample(range(-width, 0), source.choice([1, 1, 2]))
    still = [0] if source.random() < 0.5 else []
    return tilted([(loss, source.randint(1, 40)) for loss in (*ups, *downs, *still)], BASE)


def leaky(mechanism: Mechanism, leak: Fraction) -> Mechanism:
    """The same, but with probability ``leak`` all is told."""
    inner = tuple(((1 - leak) * p, (1 - leak) * q) for p, q in mechanism.pairs)
    return Mechanism(((leak, Fraction(0)), (Fraction(0), leak), *inner))


def random_runs(source: random.Random, mechanisms: int) -> list[Run]:
    """A run of one to three steps of each."""
    return [Run(at, source.choice([1, 2, 2, 3])) for at in range(mechanisms)]


def counted(*counts: int) -> Loss:
    """So many, nothing infinite."""
    return Loss(counts, (0,) * len(counts))


def curve_of(library: list[Pair]) -> Callable[[tuple[int, ...], float], float]:
    """The exact δ at ε of so many steps of each."""

    @cache
    def delta(counts: tuple[int, ...], epsilon: float) -> float:
        return composed(library, counts).delta(epsilon)

    return delta
