"""Privacy loss distributions (PLD) of mechanisms, discretised pessimistically by dp_accounting.

Connect-the-dots (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022) never tells less than the exact δ at any ε but
for rounding in its convolutions, which :func:`noise` covers. For telling people, for bounds on one fixed run and for
certificates; composing the exact curves of adaptively chosen runs is no filter.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ledger.accounting.closed_forms import delta_of_group
from ledger.accounting.rounding import float_down, float_up
from ledger.mechanism import (
    BlackBox,
    Composed,
    FullBatchEpochs,
    Gaussian,
    Group,
    Laplace,
    Mechanism,
    PoissonGaussian,
    Pure,
    RandomisedResponse,
    SelfComposed,
)
from ledger.pieces import runs_of
from ledger.priced import REPLACE, NotPriced

if TYPE_CHECKING:
    from fractions import Fraction

    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

INTERVALS: Final = (1e-3, 1e-4, 1e-5)
"""Discretisation intervals in nats, coarse to fine."""
NOISE: Final = 1e-12
NOISE_PER_STEP: Final = 1e-15


def compose(mechanism: Mechanism, relation: str, interval: float) -> PrivacyLossDistribution:
    """The distribution of a whole mechanism.

    Raises:
        NotPriced: if a part of it has no distribution.
    """
    total: PrivacyLossDistribution | None = None
    for count, step in runs_of(mechanism):
        one = repeated(step, relation, count, interval)
        total = one if total is None else total.compose(one)
    return total


@lru_cache(maxsize=16)
def repeated(step: Mechanism, relation: str, count: int, interval: float) -> PrivacyLossDistribution:
    """The distribution of ``count`` equal steps. Raises: NotPriced."""
    match step:
        case Gaussian() | FullBatchEpochs() | PoissonGaussian() if getattr(step, "probability", 1) == 1:
            return _gaussian(float_down(step.noise_multiplier) / math.sqrt(count), relation, interval)
    one = _one(step, relation, interval)
    return one if count == 1 else one.self_compose(count)


def _one(step: Mechanism, relation: str, interval: float) -> PrivacyLossDistribution:  # noqa: PLR0911 - one a kind
    from dp_accounting.pld import privacy_loss_distribution as library

    grid: dict[str, Any] = {"value_discretization_interval": interval}
    k, inner = (step.k, step.mechanism) if isinstance(step, Group) else (1, step)
    replaced = relation == REPLACE
    match inner:
        case Composed() | SelfComposed():
            return compose(step, relation, interval)
        case Gaussian() | FullBatchEpochs():
            return _gaussian(float_down(inner.noise_multiplier / k), relation, interval)
        case PoissonGaussian() if inner.probability == 1:
            return _gaussian(float_down(inner.noise_multiplier / k), relation, interval)
        case PoissonGaussian() if not replaced:
            return _sampled(inner, k, grid)
        case Laplace() if not replaced:
            return library.from_laplace_mechanism(float_down(inner.noise_multiplier / k), **grid)
        case RandomisedResponse():
            answers = library.from_randomized_response(
                float_down(inner.noise), inner.buckets, neighboring_relation=_relation(relation), **grid
            )
            return answers if k == 1 else answers.self_compose(k)
        case Pure() | BlackBox():
            return _parameters(k * inner.epsilon, _delta_of_group(inner, k), grid)
        case _:
            raise NotPriced(f"{step.kind} under {relation} has no privacy loss distribution")


def _gaussian(noise: float, relation: str, interval: float) -> PrivacyLossDistribution:
    from dp_accounting.pld import privacy_loss_distribution as library

    down = math.nextafter(noise, 0.0)
    return library.from_gaussian_mechanism(
        down, value_discretization_interval=interval, neighboring_relation=_relation(relation)
    )


def _sampled(step: PoissonGaussian, k: int, grid: dict[str, Any]) -> PrivacyLossDistribution:
    """Alone; or k records of a group, of which Binomial(k, q) are drawn (Ganesh 2024, arXiv 2401.10294)."""
    from dp_accounting.pld import privacy_loss_distribution as library
    from scipy.stats import binom

    noise, probability = float_down(step.noise_multiplier), float_up(step.probability)
    if k == 1:
        return library.from_gaussian_mechanism(noise, sampling_prob=probability, **grid)
    drawn = [float(one) for one in binom.pmf(range(k + 1), k, probability)]
    drawn[0] = 1.0 - sum(drawn[1:])
    return library.from_mixture_gaussian_mechanism(noise, [float(j) for j in range(k + 1)], drawn, **grid)


def _parameters(epsilon: Fraction, delta: float, grid: dict[str, Any]) -> PrivacyLossDistribution:
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as library

    return library.from_privacy_parameters(common.DifferentialPrivacyParameters(float_up(epsilon), delta), **grid)


def _delta_of_group(inner: Pure | BlackBox, k: int) -> float:
    return 0.0 if isinstance(inner, Pure) else float_up(delta_of_group(inner.epsilon, inner.delta, k))


def _relation(relation: str) -> Any:  # noqa: ANN401 - the library's enum
    from dp_accounting import NeighboringRelation

    return NeighboringRelation[relation]


def intervals(mechanism: Mechanism) -> tuple[float, ...]:
    """The grids worth their time: a mixture of Gaussians takes ten times as long on the next finer one."""
    mixed = any(
        isinstance(step, Group) and isinstance(step.mechanism, PoissonGaussian) for _, step in runs_of(mechanism)
    )
    return INTERVALS[:1] if mixed else INTERVALS


def noise(found: PrivacyLossDistribution, steps: int) -> float:
    """What rounding may have taken from a δ: what each composition truncates, and the error of convolutions by FFT.

    Probabilities that came out negative show how large that error is; on too fine a grid it swamps δ.
    """
    laws = (found._pmf_remove, found._pmf_add)  # noqa: SLF001 - the version is pinned, and nothing public tells it
    negative = max(_negative_mass(law) for law in laws)
    return NOISE + NOISE_PER_STEP * steps + 2 * negative


def _negative_mass(law: Any) -> float:  # noqa: ANN401 - the library's type
    import numpy as np

    probabilities = np.asarray(law.to_dense_pmf()._probs)  # noqa: SLF001 - see above
    return float(-probabilities[probabilities < 0].sum())


def delta_at(found: PrivacyLossDistribution, epsilon: float, steps: int) -> float:
    """An upper bound on the δ at ε of a distribution of so many steps."""
    return float(found.get_delta_for_epsilon(epsilon)) + noise(found, steps)


def epsilon_at(found: PrivacyLossDistribution, delta: float, steps: int) -> float:
    """An upper bound on the ε at δ of a distribution of so many steps; infinite where none can be told."""
    left = delta - noise(found, steps)
    return float(found.get_epsilon_for_delta(left)) if left > 0 else math.inf
