"""Pure ε: the greatest privacy loss a mechanism can have at all, which a budget with δ = 0 adds up."""

from __future__ import annotations

from fractions import Fraction

from ledger.accounting.renyi_closed_forms import WIDE, decimal, round_up
from ledger.mechanisms.decomposition import to_steps
from ledger.mechanisms.mechanism import BoundedRange, Group, Laplace, Mechanism, Pure, RandomisedResponse
from ledger.mechanisms.price_proofs import REPLACE, require_priced


def pure_epsilon(mechanism: Mechanism, relation: str) -> Fraction:
    """The pure ε of a mechanism in nats, rounded up.

    Raises:
        NotPriced: if it has none, or none that is proven, under this relation.
    """
    require_priced(mechanism, relation, "pure")
    return sum((count * _step(step, relation) for count, step in to_steps(mechanism)), Fraction(0))


def _step(step: Mechanism, relation: str) -> Fraction:
    scale = 2 if relation == REPLACE else 1
    match step:
        case Pure() | BoundedRange():
            return step.epsilon
        case Laplace():
            return scale / step.noise_multiplier
        case RandomisedResponse():
            return _response(step, replaced=relation == REPLACE)
        case Group():
            return step.k * _step(step.mechanism, relation)
        case _:
            return pure_epsilon(step, relation)


def _response(step: RandomisedResponse, *, replaced: bool) -> Fraction:
    """The greatest log-ratio of its two output laws; see ``renyi_closed_forms.response``."""
    low, even = step.noise / step.buckets, Fraction(1, step.buckets)
    high = 1 - step.noise + low
    ratio = high / low if replaced else max(high / even, even / low)
    return round_up(WIDE.ln(decimal(ratio)))
