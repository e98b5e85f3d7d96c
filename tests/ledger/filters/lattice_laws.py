"""Random mechanisms whose losses lie on the lattice of a potential, so that nothing is rounded in between."""

from __future__ import annotations

import random
from fractions import Fraction
from math import log

import numpy as np

from ledger.accounting.loss_lattice import LatticeLaw
from ledger.accounting.loss_potential import Laws
from tests.ledger.filters.lattice import Law, Pair, on_lattice, tilted

BASE = Fraction(6, 5)
POINTS = 16
"""Points of the lattice in one step of log(BASE)."""
BUDGET = Fraction(192 * log(BASE) / POINTS).limit_denominator(10**12)


def law(one: Law) -> LatticeLaw:
    """A law of the adversary's lattice, on the potential's, as it is: nothing is rounded."""
    span = POINTS * max(one.high, -one.low)
    probabilities = np.zeros(2 * span + 1)
    probabilities[span + POINTS * one.low : span + POINTS * one.high + 1 : POINTS] = one.weights
    return LatticeLaw(probabilities, one.sure)


def laws(pair: Pair) -> Laws:
    """Of both orders, at one span."""
    both = [law(one) for one in (pair.forward, pair.backward)]
    span = max(one.span for one in both)
    one, other = (LatticeLaw(np.pad(each.probabilities, span - each.span), each.infinite) for each in both)
    return one, other


def random_pair(source: random.Random) -> Pair:
    """Some losses up and some down, of up to five steps of the lattice."""
    weights = [(source.randint(1, 5), source.randint(1, 30)), (-source.randint(1, 5), source.randint(1, 30))]
    if source.random() < 0.5:
        weights.append((0, source.randint(1, 40)))
    return on_lattice(tilted(weights, BASE), log(BASE))
