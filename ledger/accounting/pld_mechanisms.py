"""Privacy loss distributions (PLD) of mechanisms, discretised pessimistically by dp_accounting.

Connect-the-dots (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022) never gives less than the exact δ at any ε, except
for rounding in its convolutions, which ``Distribution.noise`` covers. It serves reports, bounds on one fixed run and
certificates; composing the exact curves of adaptively chosen runs is not a privacy filter.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any, Final

from ledger.accounting.pld import Distribution, require_points
from ledger.accounting.renyi_closed_forms import delta_of_group
from ledger.accounting.rounding import float_down, float_up
from ledger.mechanisms import mechanism as m
from ledger.mechanisms.decomposition import to_steps
from ledger.mechanisms.price_proofs import REPLACE, ZERO_OUT, NotPriced

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

INTERVALS: Final = (1e-3, 1e-4, 1e-5)
"""Discretisation intervals in nats, coarse to fine. Recorded decisions rest on them: coarser ones would refuse some."""


def compose(mechanism: m.Mechanism, relation: str, interval: float) -> Distribution:
    """The distribution of a whole mechanism.

    Raises:
        NotPriced: if a part of it has no distribution.
        GridTooLarge: if its grid would have too many points.
        OutputsNotFound: for a large group at much noise.
    """
    parts = [repeated(step, relation, count, interval) for count, step in to_steps(mechanism)]
    return reduce(Distribution.compose, parts)


@lru_cache(maxsize=16)
def repeated(step: m.Mechanism, relation: str, count: int, interval: float) -> Distribution:
    """The distribution of ``count`` equal steps. Raises: NotPriced, GridTooLarge, OutputsNotFound."""
    if isinstance(step, m.Composed | m.SelfComposed) or (
        isinstance(step, m.Group) and isinstance(step.mechanism, m.Composed | m.SelfComposed)
    ):
        return compose(step, relation, interval).self_compose(count)
    k, inner = ungrouped(step)
    noise = unsampled_noise(inner)
    if noise is not None:
        # So many Gaussian sums are one of less noise, exactly.
        down = math.nextafter(float_down(noise / k) / math.sqrt(count), 0.0)
        return Distribution.of(_gaussian(down, relation, interval))
    if isinstance(inner, m.GaussianPrivate):
        # A claim holds under its own relation, whose sensitivity it has in it: one sum of sensitivity 1 at noise 1/μ.
        mu = math.nextafter(math.sqrt(float_up(k * k * count * inner.mu_square)), math.inf)
        return Distribution.of(_gaussian(math.nextafter(1 / mu, 0.0), ZERO_OUT, interval))
    answers = k if isinstance(inner, m.RandomisedResponse) else 1
    return _single(inner, k, relation, interval).self_compose(count * answers)


@lru_cache(maxsize=6)
def _single(inner: m.Mechanism, k: int, relation: str, interval: float) -> Distribution:
    """One step: the same for every number of steps, and most of the work for any. Three grids of two plans are kept."""
    return Distribution.of(_one(inner, k, relation, interval))


def ungrouped(step: m.Mechanism) -> tuple[int, m.Mechanism]:
    """The size of the group that sees a step, 1 for a single record, and the step itself."""
    return (step.k, step.mechanism) if isinstance(step, m.Group) else (1, step)


def unsampled_noise(inner: m.Mechanism) -> Fraction | None:
    """The noise multiplier of a Gaussian sum over all records, None for any other mechanism."""
    if isinstance(inner, m.Gaussian | m.FullBatchEpochs):
        return inner.noise_multiplier
    return inner.noise_multiplier if isinstance(inner, m.PoissonGaussian) and inner.probability == 1 else None


def _one(inner: m.Mechanism, k: int, relation: str, interval: float) -> PrivacyLossDistribution:
    """A single step, seen by a group of k (of randomised response: one of its answers)."""
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as library

    grid: dict[str, Any] = {"value_discretization_interval": interval}
    replaced = relation == REPLACE
    match inner:
        case m.PoissonGaussian() if not replaced:
            return _sampled(inner, k, interval)
        case m.Laplace() if not replaced:
            require_points(float(2 * k / inner.noise_multiplier) / interval)
            return library.from_laplace_mechanism(float_down(inner.noise_multiplier / k), **grid)
        case m.RandomisedResponse():
            # The library takes no certain noise. With a little less an answer loses more.
            noise = min(float_down(inner.noise), math.nextafter(1.0, 0.0))
            return library.from_randomized_response(
                noise, inner.buckets, neighboring_relation=_relation(relation), **grid
            )
        case m.Pure() | m.BoundedRange() | m.BlackBox():
            require_points(float(2 * k * inner.epsilon) / interval)
            delta = float_up(delta_of_group(inner.epsilon, inner.delta, k)) if isinstance(inner, m.BlackBox) else 0.0
            if delta >= 1:
                raise NotPriced(f"{inner.kind} bounds nothing for a group of {k}: its δ is then 1")
            parameters = common.DifferentialPrivacyParameters(float_up(k * inner.epsilon), delta)
            return library.from_privacy_parameters(parameters, **grid)
        case _:
            raise NotPriced(f"{inner.kind} under {relation} has no privacy loss distribution")


def _gaussian(noise: float, relation: str, interval: float) -> PrivacyLossDistribution:
    from dp_accounting.pld import privacy_loss_distribution as library

    require_points(_reach(2 / noise) / interval)
    return library.from_gaussian_mechanism(
        noise, value_discretization_interval=interval, neighboring_relation=_relation(relation)
    )


def _reach(distance: float) -> float:
    """Twice the loss of a Gaussian sum at ten deviations, where the library cuts its tails."""
    return distance * distance + 20 * distance


def _sampled(step: m.PoissonGaussian, k: int, interval: float) -> PrivacyLossDistribution:
    """Alone; or k records of a group, of which Binomial(k, q) are drawn (Ganesh 2024, arXiv 2401.10294)."""
    from scipy.stats import binom

    from ledger.accounting.pld_sampled_gaussian import sampled_gaussian, sampled_group

    noise, probability = float_down(step.noise_multiplier), float_up(step.probability)
    require_points(_reach(k / noise) / interval)
    if k == 1:
        return sampled_gaussian(noise, probability, interval)
    # That none is drawn is the rest of it; as a difference it would come out below 0.
    drawn = [float((1 - step.probability) ** k), *(float(mass) for mass in binom.pmf(range(1, k + 1), k, probability))]
    return sampled_group(noise, drawn, interval)


def _relation(relation: str) -> Any:  # noqa: ANN401 - the library's enum
    from dp_accounting import NeighboringRelation

    return NeighboringRelation[relation]


def intervals(mechanism: m.Mechanism) -> tuple[float, ...]:
    """The grids worth their time: of a mixture of Gaussians the next finer one takes tenths of a second."""
    return INTERVALS[:1] if any(is_mixture(step) for _, step in to_steps(mechanism)) else INTERVALS


def is_mixture(step: m.Mechanism) -> bool:
    """Whether its law is a mixture of several Gaussians, which takes longer to discretise."""
    inner = step.mechanism if isinstance(step, m.Group) else None
    return isinstance(inner, m.PoissonGaussian) and inner.probability != 1
