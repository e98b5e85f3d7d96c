"""How many trials run: drawn from its law by 256 random bits of hardware entropy, exactly but for less than 2^-250."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from decimal import Context, Decimal
from typing import Final

from ledger.mechanisms.tuning import GEOMETRIC, Trials

BITS: Final = 256
_WIDE: Final = Context(prec=120)


def draw_number(trials: Trials) -> int:
    """A number of trials; 0 where more than the most were drawn. It is secret: no one but the run may know it."""
    return number_of(trials, secrets.randbits(BITS))


def number_of(trials: Trials, drawn: int) -> int:
    """The number at a place among the 2^256 of its law: the least whose cumulative probability lies above."""
    place, below = _WIDE.divide(Decimal(drawn), Decimal(2**BITS)), Decimal(0)
    for number, probability in enumerate(_law(trials)):
        below = _WIDE.add(below, probability)
        if place < below:
            return number
    return 0


def _law(trials: Trials) -> Iterator[Decimal]:
    """P[K = 0], P[K = 1], ... up to the most."""
    mean = _WIDE.divide(Decimal(trials.mean.numerator), Decimal(trials.mean.denominator))
    if trials.law == GEOMETRIC:
        found = _WIDE.divide(Decimal(1), mean)
        rest = _WIDE.subtract(Decimal(1), found)
        yield Decimal(0)
        for _ in range(trials.most):
            yield found
            found = _WIDE.multiply(found, rest)
        return
    found = _WIDE.exp(_WIDE.minus(mean))
    yield found
    for number in range(1, trials.most + 1):
        found = _WIDE.divide(_WIDE.multiply(found, mean), Decimal(number))
        yield found
