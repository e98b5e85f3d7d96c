"""The cost of one step at each order, in loss units rounded up: the price under the rule ``renyi``.

Only the Poisson-sampled Gaussian needs the library, and floats; all else is rational or has 60 digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial
from typing import Final

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
    """The cost of a mechanism at each order, in loss units rounded up; None where it is infinite.

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


@lru_cache(maxsize=65_536)
def divergence(  # noqa: C901, PLR0911, PLR0912 - one formula a kind
    mechanism: m.Mechanism, relation: str, order: int, k: int = 1, *, halves: int = ISSUED
) -> Fraction | None:
    """An upper bound on the Rényi divergence at an integer order in nats, None where it is infinite or unknown.

    For a group of ``k`` records that change together, with ``halves`` halves of the slack. The part of a black box that
    loses everything, with probability δ, is not in it.
    """
    # How far a sum moves when k records change.
    scale = 2 * k if relation == REPLACE else k

    def of(inner: m.Mechanism, at: int = order, group: int = k) -> Fraction | None:
        return divergence(inner, relation, at, group, halves=halves)

    match mechanism:
        case m.Gaussian() | m.DiscreteGaussian():
            return exact.gaussian(mechanism.noise_multiplier, scale, order)
        case m.FullBatchEpochs():
            return mechanism.epochs * exact.gaussian(mechanism.noise_multiplier, scale, order)
        case m.Laplace():
            return exact.laplace(mechanism.noise_multiplier, scale, order)
        case m.RandomisedResponse():
            return k * exact.response(mechanism.buckets, mechanism.noise, order, replaced=relation == REPLACE)
        case m.Pure() | m.BlackBox():
            return exact.pure(k * mechanism.epsilon, order)
        case m.BoundedRange(epsilon=epsilon):
            return min(exact.pure(k * epsilon, order), exact.zcdp((k * epsilon) ** 2 / 8, Fraction(0), order))
        case m.GaussianPrivate():
            return exact.zcdp(k * k * mechanism.mu_square / 2, Fraction(0), order)
        case m.Zcdp() if k == 1 or not mechanism.xi:
            return k * k * exact.zcdp(mechanism.rho, mechanism.xi, order)
        case m.PoissonGaussian() if mechanism.probability == 1:
            return mechanism.steps * exact.gaussian(mechanism.noise_multiplier, k, order)
        case m.PoissonGaussian() if k == 1:
            return _times(mechanism.steps, _sampled(replace(mechanism, steps=1), order, halves))
        case m.PoissonGaussian():
            mixed = exact.sampled_group(mechanism.noise_multiplier, mechanism.probability, k, order)
            doubled = _of_group(of, replace(mechanism, steps=1), order, k)
            return mechanism.steps * (mixed if doubled is None else min(mixed, doubled))
        case m.SampledWithoutReplacement(noise_multiplier=noise, population=population, sample=sample) if k == 1:
            return mechanism.steps * exact.without_replacement(noise, population, sample, order)
        case m.SampledWithoutReplacement():
            return _times(mechanism.steps, _of_group(of, replace(mechanism, steps=1), order, k))
        case m.Zcdp():
            return _of_group(of, mechanism, order, k)
        case m.Group():
            return of(mechanism.mechanism, group=k * mechanism.k)
        case m.RepeatAndSelect():
            # Selection is of the runs that a whole group sees.
            return selected(partial(of, mechanism.mechanism), mechanism.mean, mechanism.shape, order)
        case m.Composed():
            parts = [of(part) for part in mechanism.mechanisms]
            finite = [part for part in parts if part is not None]
            return sum(finite, Fraction(0)) if len(finite) == len(parts) else None
        case m.SelfComposed():
            return _times(mechanism.count, of(mechanism.mechanism))
        case _:
            raise AssertionError(f"{mechanism.kind} has a row in the table and no formula")


def _of_group(
    curve: Callable[[m.Mechanism, int, int], Fraction | None], mechanism: m.Mechanism, order: int, k: int
) -> Fraction | None:
    """Mironov 2017, Proposition 2: with c doublings that reach k, D_α of the group is at most 3^c·D_(2^c·α)."""
    doublings = (k - 1).bit_length()
    if order << doublings > GROUP_ORDER_MAX:
        return None
    return _times(3**doublings, curve(mechanism, order << doublings, 1))


def _times(count: int, rho: Fraction | None) -> Fraction | None:
    return None if rho is None else count * rho


def _sampled(step: m.PoissonGaussian, order: int, halves: int) -> Fraction | None:
    """The divergence of one sampled step, with ``halves`` halves of the slack."""
    rho, part = _by_library(step, order), Fraction(halves, ISSUED)
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
