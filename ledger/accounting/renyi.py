"""What one step costs at each order, in loss units rounded up: the price that the rule ``renyi`` charges.

Only the Poisson-sampled Gaussian needs the library, and floats; all else is rational or has 60 digits.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache, partial, singledispatch
from typing import Final

from ledger.accounting import closed_forms as exact
from ledger.accounting.rounding import event
from ledger.accounting.selection import selected
from ledger.loss import Price
from ledger.mechanism import (
    BlackBox,
    Composed,
    DiscreteGaussian,
    FullBatchEpochs,
    Gaussian,
    Group,
    Laplace,
    Mechanism,
    PoissonGaussian,
    Pure,
    RandomisedResponse,
    RepeatAndSelect,
    SampledWithoutReplacement,
    SelfComposed,
    Zcdp,
)
from ledger.priced import REPLACE, require_priced
from ledger.units import LOSS_MAX, ceil_units

RELATIVE_SLACK: Final = Fraction(1, 10**9)
ABSOLUTE_SLACK: Final = Fraction(1, 10**12)
"""Per sampled step. Against 60-digit arithmetic the library errs by at most 2.4e-13·max(1, log A) at integer orders,
on either side, and relatively by 4e-9 where a step loses less than 1e-16: both lie within these two."""

GROUP_ORDER_MAX: Final = 256
"""Beyond it the loss of a group counts as infinite: its terms are as many as the order, and it would not be least."""


@lru_cache(maxsize=65_536)
def price(step: Mechanism, relation: str, orders: tuple[int, ...]) -> Price:
    """What a mechanism costs at each order, in loss units rounded up; None where it is infinite.

    For a Poisson-sampled Gaussian step the price exceeds the exact divergence ρ by at most
    ``1.001e-9·ρ + 1.3e-12 nat + 2^-40 nat``, the library's own error included; for the others by less than two
    units of 2^-40 nat a step. It is never below it.

    Raises:
        NotPriced: if there is no proof for this mechanism under this relation.
        ArithmeticError: if the library returns no number.
    """
    require_priced(step, relation, "renyi")
    return tuple(_units(divergence(step, relation, order)) for order in orders)


def _units(rho: Fraction | None) -> int | None:
    units = None if rho is None else ceil_units(rho)
    return None if units is None or units > LOSS_MAX else units


@lru_cache(maxsize=65_536)
def divergence(mechanism: Mechanism, relation: str, order: int, k: int = 1) -> Fraction | None:
    """An upper bound on the Rényi divergence at an integer order in nats, None where it is infinite or unknown.

    Of a group of ``k`` records that change together. The part of a black box that loses everything, with probability
    δ, is not in it.
    """
    return _curve(mechanism, relation, order, k)


@singledispatch
def _curve(mechanism: Mechanism, relation: str, order: int, k: int) -> Fraction | None:
    """One formula a kind, below."""
    raise AssertionError(f"{mechanism.kind} has a row in the table and no formula: {relation}, {order}, {k}")


def _scale(relation: str, k: int) -> int:
    """How far a sum moves when k records change."""
    return 2 * k if relation == REPLACE else k


@_curve.register
def _(one: Gaussian | DiscreteGaussian, relation: str, order: int, k: int) -> Fraction | None:
    return exact.gaussian(one.noise_multiplier, _scale(relation, k), order)


@_curve.register
def _(one: FullBatchEpochs, relation: str, order: int, k: int) -> Fraction | None:
    return one.epochs * exact.gaussian(one.noise_multiplier, _scale(relation, k), order)


@_curve.register
def _(one: Laplace, relation: str, order: int, k: int) -> Fraction | None:
    return exact.laplace(one.noise_multiplier, _scale(relation, k), order)


@_curve.register
def _(one: RandomisedResponse, relation: str, order: int, k: int) -> Fraction | None:
    return k * exact.response(one.buckets, one.noise, order, replaced=relation == REPLACE)


@_curve.register
def _(one: Pure | BlackBox, relation: str, order: int, k: int) -> Fraction | None:
    del relation
    return exact.pure(k * one.epsilon, order)


@_curve.register
def _(one: Zcdp, relation: str, order: int, k: int) -> Fraction | None:
    if k > 1 and one.xi:
        return _of_group(one, relation, order, k)
    return k * k * exact.zcdp(one.rho, one.xi, order)


@_curve.register
def _(one: PoissonGaussian, relation: str, order: int, k: int) -> Fraction | None:
    if one.probability == 1:
        return one.steps * exact.gaussian(one.noise_multiplier, k, order)
    if k == 1:
        return _times(one.steps, _sampled(replace(one, steps=1), order))
    mixed = exact.sampled_group(one.noise_multiplier, one.probability, k, order)
    doubled = _of_group(replace(one, steps=1), relation, order, k)
    return one.steps * (mixed if doubled is None else min(mixed, doubled))


@_curve.register
def _(one: SampledWithoutReplacement, relation: str, order: int, k: int) -> Fraction | None:
    if k > 1:
        return _times(one.steps, _of_group(replace(one, steps=1), relation, order, k))
    return one.steps * exact.without_replacement(one.noise_multiplier, one.population, one.sample, order)


@_curve.register
def _(one: Group, relation: str, order: int, k: int) -> Fraction | None:
    return divergence(one.mechanism, relation, order, k * one.k)


@_curve.register
def _(one: RepeatAndSelect, relation: str, order: int, k: int) -> Fraction | None:
    # Selection is of the runs that a whole group sees.
    inner = partial(_at_order, one.mechanism, relation, k)
    return selected(inner, one.mean, one.shape, order)


@_curve.register
def _(one: Composed, relation: str, order: int, k: int) -> Fraction | None:
    parts = [divergence(part, relation, order, k) for part in one.mechanisms]
    known = [part for part in parts if part is not None]
    return sum(known, Fraction(0)) if len(known) == len(parts) else None


@_curve.register
def _(one: SelfComposed, relation: str, order: int, k: int) -> Fraction | None:
    return _times(one.count, divergence(one.mechanism, relation, order, k))


def _at_order(mechanism: Mechanism, relation: str, k: int, order: int) -> Fraction | None:
    return divergence(mechanism, relation, order, k)


def _of_group(mechanism: Mechanism, relation: str, order: int, k: int) -> Fraction | None:
    """Mironov 2017, Proposition 2: with c doublings that reach k, D_α of the group is at most 3^c·D_(2^c·α)."""
    doublings = (k - 1).bit_length()
    if order << doublings > GROUP_ORDER_MAX:
        return None
    return _times(3**doublings, divergence(mechanism, relation, order << doublings))


def _times(count: int, rho: Fraction | None) -> Fraction | None:
    return None if rho is None else count * rho


@lru_cache(maxsize=65_536)
def _sampled(step: PoissonGaussian, order: int) -> Fraction | None:
    """The library's divergence of one sampled step (Mironov, Talwar, Zhang 2019, Section 3.3), and its slack.

    At integer orders this bounds both directions of add-remove and zero-out neighbours.
    """
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(orders=[order])
    accountant.compose(event(step))
    rho = float(accountant.rdp[0])
    if math.isnan(rho):
        raise ArithmeticError("the accountant returned no number")
    return None if math.isinf(rho) else Fraction(max(0.0, rho)) * (1 + RELATIVE_SLACK) + ABSOLUTE_SLACK
