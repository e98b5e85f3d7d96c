"""What one step costs at each order, in loss units rounded up: the price that the rule ``renyi`` charges.

Only the Poisson-sampled Gaussian needs the library, and floats; all else is rational or has 60 digits.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache, partial, singledispatch
from typing import Final, NamedTuple

from msgspec.structs import replace

from ledger.accounting import renyi_closed_forms as exact
from ledger.accounting.private_selection import selected
from ledger.accounting.rounding import float_down, float_up
from ledger.mechanisms import mechanism as m
from ledger.mechanisms.loss import Price
from ledger.mechanisms.price_proofs import REPLACE, require_priced
from ledger.wire.exact_numbers import LOSS_MAX, ceil_units

RELATIVE_SLACK: Final = Fraction(1, 10**9)
ABSOLUTE_SLACK: Final = Fraction(1, 10**12)
"""Per sampled step. Against 60-digit arithmetic the library errs by at most 2.4e-13·max(1, log A) at integer orders,
on either side, and relatively by 4e-9 where a step loses less than 1e-16: both lie within half of these two."""
ISSUED: Final = 2
ACCEPTED: Final = 1
"""Halves of the slack. A price that is issued has both. One that was recorded is accepted with a single half, which by
itself covers the library's error, so what is accepted is sound. The other half is room for the machine that accepts: it
may find 5e-13 nat and 5e-10 of ρ more than the one that issued, and two that err by at most 2.4e-13 each do not."""

GROUP_ORDER_MAX: Final = 256
"""Beyond it the loss of a group counts as infinite: its terms are as many as the order, and it would not be least."""


@lru_cache(maxsize=65_536)
def price(step: m.Mechanism, relation: str, orders: tuple[int, ...], halves: int = ISSUED) -> Price:
    """What a mechanism costs at each order, in loss units rounded up; None where it is infinite.

    For a Poisson-sampled Gaussian step the price exceeds the exact divergence ρ by at most
    ``1.001e-9·ρ + 1.3e-12 nat + 2^-40 nat``, the library's own error included; for the others by less than two
    units of 2^-40 nat a step. It is never below it.

    Args:
        halves: of the slack: ``ISSUED`` for what is charged, ``ACCEPTED`` for the least that is accepted of another.

    Raises:
        NotPriced: if there is no proof for this mechanism under this relation.
        ArithmeticError: if the library returns no number.
    """
    require_priced(step, relation, "renyi")
    return tuple(_units(divergence(step, relation, order, halves=halves)) for order in orders)


def _units(rho: Fraction | None) -> int | None:
    units = None if rho is None else ceil_units(rho)
    return None if units is None or units > LOSS_MAX else units


class _At(NamedTuple):
    """Where a curve is evaluated: of a group of ``k``, with so many halves of the slack."""

    relation: str
    order: int
    k: int
    halves: int

    @property
    def scale(self) -> int:
        """How far a sum moves when k records change."""
        return 2 * self.k if self.relation == REPLACE else self.k


@lru_cache(maxsize=65_536)
def divergence(
    mechanism: m.Mechanism, relation: str, order: int, k: int = 1, *, halves: int = ISSUED
) -> Fraction | None:
    """An upper bound on the Rényi divergence at an integer order in nats, None where it is infinite or unknown.

    Of a group of ``k`` records that change together. The part of a black box that loses everything, with probability
    δ, is not in it.
    """
    return _curve(mechanism, _At(relation, order, k, halves))


@singledispatch
def _curve(mechanism: m.Mechanism, at: _At) -> Fraction | None:
    """One formula a kind, below."""
    raise AssertionError(f"{mechanism.kind} has a row in the table and no formula: {at}")


def _of(mechanism: m.Mechanism, at: _At) -> Fraction | None:
    return divergence(mechanism, at.relation, at.order, at.k, halves=at.halves)


@_curve.register
def _(one: m.Gaussian | m.DiscreteGaussian, at: _At) -> Fraction | None:
    return exact.gaussian(one.noise_multiplier, at.scale, at.order)


@_curve.register
def _(one: m.FullBatchEpochs, at: _At) -> Fraction | None:
    return one.epochs * exact.gaussian(one.noise_multiplier, at.scale, at.order)


@_curve.register
def _(one: m.Laplace, at: _At) -> Fraction | None:
    return exact.laplace(one.noise_multiplier, at.scale, at.order)


@_curve.register
def _(one: m.RandomisedResponse, at: _At) -> Fraction | None:
    return at.k * exact.response(one.buckets, one.noise, at.order, replaced=at.relation == REPLACE)


@_curve.register
def _(one: m.Pure | m.BlackBox, at: _At) -> Fraction | None:
    return exact.pure(at.k * one.epsilon, at.order)


@_curve.register
def _(one: m.Zcdp, at: _At) -> Fraction | None:
    if at.k > 1 and one.xi:
        return _of_group(one, at)
    return at.k * at.k * exact.zcdp(one.rho, one.xi, at.order)


@_curve.register
def _(one: m.PoissonGaussian, at: _At) -> Fraction | None:
    if one.probability == 1:
        return one.steps * exact.gaussian(one.noise_multiplier, at.k, at.order)
    if at.k == 1:
        return _times(one.steps, _sampled(replace(one, steps=1), at))
    mixed = exact.sampled_group(one.noise_multiplier, one.probability, at.k, at.order)
    doubled = _of_group(replace(one, steps=1), at)
    return one.steps * (mixed if doubled is None else min(mixed, doubled))


@_curve.register
def _(one: m.SampledWithoutReplacement, at: _At) -> Fraction | None:
    if at.k > 1:
        return _times(one.steps, _of_group(replace(one, steps=1), at))
    return one.steps * exact.without_replacement(one.noise_multiplier, one.population, one.sample, at.order)


@_curve.register
def _(one: m.Group, at: _At) -> Fraction | None:
    return _of(one.mechanism, at._replace(k=at.k * one.k))


@_curve.register
def _(one: m.RepeatAndSelect, at: _At) -> Fraction | None:
    # Selection is of the runs that a whole group sees.
    inner = partial(_at_order, one.mechanism, at)
    return selected(inner, one.mean, one.shape, at.order)


@_curve.register
def _(one: m.Composed, at: _At) -> Fraction | None:
    parts = [_of(part, at) for part in one.mechanisms]
    known = [part for part in parts if part is not None]
    return sum(known, Fraction(0)) if len(known) == len(parts) else None


@_curve.register
def _(one: m.SelfComposed, at: _At) -> Fraction | None:
    return _times(one.count, _of(one.mechanism, at))


def _at_order(mechanism: m.Mechanism, at: _At, order: int) -> Fraction | None:
    return _of(mechanism, at._replace(order=order))


def _of_group(mechanism: m.Mechanism, at: _At) -> Fraction | None:
    """Mironov 2017, Proposition 2: with c doublings that reach k, D_α of the group is at most 3^c·D_(2^c·α)."""
    doublings = (at.k - 1).bit_length()
    if at.order << doublings > GROUP_ORDER_MAX:
        return None
    return _times(3**doublings, _of(mechanism, at._replace(order=at.order << doublings, k=1)))


def _times(count: int, rho: Fraction | None) -> Fraction | None:
    return None if rho is None else count * rho


def _sampled(step: m.PoissonGaussian, at: _At) -> Fraction | None:
    """One sampled step's, with so many halves of the slack."""
    rho, part = _by_library(step, at.order), Fraction(at.halves, ISSUED)
    return None if rho is None else rho * (1 + part * RELATIVE_SLACK) + part * ABSOLUTE_SLACK


@lru_cache(maxsize=65_536)
def _by_library(step: m.PoissonGaussian, order: int) -> Fraction | None:
    """The library's divergence of one sampled step (Mironov, Talwar, Zhang 2019, Section 3.3), as it comes.

    At integer orders this bounds both directions of add-remove and zero-out neighbours.
    """
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(orders=[order])
    # Floats only: the library miscounts an integer noise multiplier.
    gaussian, probability = GaussianDpEvent(float_down(step.noise_multiplier)), float_up(step.probability)
    accountant.compose(gaussian if probability >= 1.0 else PoissonSampledDpEvent(probability, gaussian))
    rho = float(accountant.rdp[0])
    if math.isnan(rho):
        raise ArithmeticError("the accountant returned no number")
    return None if math.isinf(rho) else Fraction(max(0.0, rho))
