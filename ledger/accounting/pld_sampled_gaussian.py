"""The discretised privacy loss distribution (PLD) of one Poisson-sampled Gaussian step, by whole arrays.

It is dp_accounting's own ``from_gaussian_mechanism``: its bounds of the grid, its connect-the-dots (Doroshenko, Ghazi,
Kamath, Kumar, Manurangsi 2022). The library looks for the output of each loss in a Python loop over the grid, which
takes nearly all of the time; here that inverse is one expression over the grid.

Of k records that change together j are drawn with a probability w_j, and move the sum j times as far: a mixture of
Gaussians (Ganesh 2024, arXiv 2401.10294), the library's ``from_mixture_gaussian_mechanism``. Its loop bisects for each
output; here Newton's steps take the whole grid at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from dp_accounting.pld.pld_pmf import DensePLDPmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss, MixtureGaussianPrivacyLoss
from scipy import special

from ledger.accounting.pld import OutputsNotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_ROUNDING: Final = 1e-12
_STEPS_MAX: Final = 60
"""Newton's steps; from where they begin about eight are taken."""
_EXACT: Final = 1e-13
"""An output that moves by less than this part of the noise is found: a δ changes with the square of it."""
_CELLS_MAX: Final = 1 << 20
"""Of a table of outputs and records that is made at once: eight megabytes."""


def sampled_gaussian(noise: float, probability: float, interval: float) -> PrivacyLossDistribution:
    """Both directions of one step.

    Args:
        noise: the noise multiplier.
        probability: with which a record is sampled, less than 1.
        interval: of the grid of losses, in nats.
    """
    remove, add = (
        _one_direction(GaussianPrivacyLoss(noise, sampling_prob=probability, adjacency_type=direction), interval)
        for direction in (AdjacencyType.REMOVE, AdjacencyType.ADD)
    )
    return PrivacyLossDistribution(remove, add)


def _one_direction(loss: GaussianPrivacyLoss, interval: float) -> Any:  # noqa: ANN401 - the library's type
    bounds = loss.connect_dots_bounds()
    low, high = math.floor(bounds.epsilon_lower / interval), math.ceil(bounds.epsilon_upper / interval)
    deltas = _hockey_stick(loss, np.arange(low, high + 1) * interval)
    return DensePLDPmf(interval, low, connected(deltas, interval), float(deltas.min()), True)  # noqa: FBT003 - the library's


def connected(deltas: NDArray[np.float64], interval: float) -> NDArray[np.float64]:
    """The probabilities of the law whose curve goes straight, in e^ε, from each δ to the next: Algorithm 1 there.

    Args:
        deltas: at ε one interval apart, ascending; rising nowhere but by rounding.
    """
    if len(deltas) == 1:
        return 1 - deltas
    # What rises by more than rounding is no curve, and to take the least of it would lower it.
    assert np.diff(deltas).max() <= _ROUNDING, "a hockey-stick curve rises"
    steps = np.diff(np.minimum.accumulate(deltas))
    law, once = np.empty_like(deltas), math.expm1(interval)
    law[0] = 1 - deltas[0] + steps[0] / once
    law[1:-1] = (steps[1:] - steps[:-1] * math.exp(interval)) / once
    law[-1] = steps[-1] / math.expm1(-interval)
    return np.maximum(0.0, law)


def _hockey_stick(loss: GaussianPrivacyLoss, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
    """The δ at each ε: P(x <= t) - e^ε·Q(x <= t), where t is the output whose loss is ε.

    The loss falls as the output grows. Where no output has a loss so small, P(x) - e^ε·Q(x) is positive everywhere and
    the δ is 1 - e^ε; where none has one so great, it is 0.
    """
    add = loss.adjacency_type is AdjacencyType.ADD
    signed = -epsilons if add else epsilons
    # The step without sampling whose sampled loss is ε: log(1 + (e^ε - 1)/q), and by symmetry in the other direction.
    q = loss.sampling_prob
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        near = np.log1p(np.expm1(signed) / q)
        far = signed - math.log(q) + np.log1p((q - 1) * np.exp(-signed))
    unsampled = np.where(signed > 1, far, near)
    reached = np.isfinite(unsampled)
    losses = -unsampled[reached] if add else unsampled[reached]
    variance = loss._standard_deviation**2  # noqa: SLF001 - the version is pinned, and nothing public gives it
    outputs = (0.5 if add else -0.5) * loss.sensitivity - losses * variance / loss.sensitivity
    below = loss.mu_upper_cdf(outputs) - np.exp(epsilons[reached] + loss.mu_lower_log_cdf(outputs))
    deltas = np.zeros_like(epsilons) if add else -np.expm1(epsilons)
    deltas[reached] = below
    return np.clip(deltas, 0.0, 1.0)


def sampled_group(noise: float, weights: Sequence[float], interval: float) -> PrivacyLossDistribution:
    """Both directions of one step.

    Args:
        noise: the noise multiplier.
        weights: the probability that 0, 1, ... records of the group are drawn; more than one is drawn with some.
        interval: of the grid of losses, in nats.

    Raises:
        OutputsNotFound.
    """
    remove, add = (
        _group_direction(noise, weights, direction, interval) for direction in (AdjacencyType.REMOVE, AdjacencyType.ADD)
    )
    return PrivacyLossDistribution(remove, add)


def _group_direction(noise: float, weights: Sequence[float], direction: AdjacencyType, interval: float) -> DensePLDPmf:
    loss = MixtureGaussianPrivacyLoss(noise, [*range(len(weights))], weights, adjacency_type=direction)
    bounds = loss.connect_dots_bounds()
    low, high = math.floor(bounds.epsilon_lower / interval), math.ceil(bounds.epsilon_upper / interval)
    epsilons = np.arange(low, high + 1) * interval
    pieces = np.array_split(epsilons, math.ceil(len(epsilons) * len(weights) / _CELLS_MAX))
    deltas = np.concatenate(
        [group_hockey_stick(noise, weights, piece, add=direction is AdjacencyType.ADD) for piece in pieces]
    )
    return DensePLDPmf(interval, low, connected(deltas, interval), float(deltas.min()), True)  # noqa: FBT003 - the library's


def group_hockey_stick(noise: float, weights: Sequence[float], epsilons: Floats, *, add: bool) -> Floats:
    """The δ at each ε: P(x <= t) - e^ε·Q(x <= t), where t is the output whose loss is ε.

    Removed, P is the mixture of Gaussians around -j and Q the Gaussian around 0; added, P is the Gaussian around 0 and
    Q the mixture of those around j. The loss falls as the output grows. Where no output has a loss so small,
    P(x) - e^ε·Q(x) is positive everywhere and the δ is 1 - e^ε; where none has one so great, it is 0.

    Raises:
        OutputsNotFound: where rounding keeps the outputs of large groups at much noise from being found exactly.
    """
    drawn, w = np.flatnonzero(weights), np.asarray(weights)[np.flatnonzero(weights)]
    # The loss that is added is the one that is removed, of the opposite output, and negated.
    removed = -epsilons if add else epsilons
    mixed = _beyond_none(np.asarray(weights), removed)
    reached = np.isfinite(mixed)
    found = noise * _outputs(noise, np.asarray(weights), mixed[reached])
    if add:
        outputs, deltas = -found, np.zeros_like(epsilons)
        lower = special.logsumexp(special.log_ndtr(np.subtract.outer(outputs, drawn) / noise), axis=1, b=w)
        deltas[reached] = special.ndtr(outputs / noise) - np.exp(epsilons[reached] + lower)
    else:
        # No loss is too small to be reached but a negative one.
        outputs, deltas = found, -np.expm1(np.minimum(0.0, epsilons))
        upper = (special.ndtr(np.add.outer(outputs, drawn) / noise) * w).sum(axis=1)
        deltas[reached] = upper - np.exp(epsilons[reached] + special.log_ndtr(outputs / noise))
    return np.clip(deltas, 0.0, 1.0)


def _beyond_none(weights: Floats, losses: Floats) -> Floats:
    """log(e^l - w_0): what the terms of the records that are drawn add up to where the loss is l; else no number."""
    none, some = weights[0], weights[1:].sum()
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        below = np.log(np.where(losses > -1, np.expm1(losses) + some, np.exp(losses) - none))
        far = losses + np.log1p(-none * np.exp(-losses))
    return np.asarray(np.where(losses > 1, far, below))


def _outputs(noise: float, weights: Floats, mixed: Floats) -> Floats:
    """The output y, in units of the noise, for which log Σ_(j>0) w_j·e^(-(j·y/σ + j²/(2σ²))) is as given.

    That sum is convex in y and falls. Where its greatest term alone is as great, y is too small by the log of the
    number of terms over the least slope at most; from there each of Newton's steps comes nearer and never too far.
    """
    slopes = np.flatnonzero(weights[1:] > 0) + 1.0
    heights = np.log(weights[slopes.astype(int)]) - slopes * slopes / (2 * noise * noise)
    slopes = slopes / noise
    found: Floats = (np.subtract.outer(heights, mixed) / slopes[:, None]).max(axis=0)
    for _ in range(_STEPS_MAX):
        terms = heights[:, None] - np.multiply.outer(slopes, found)
        total = special.logsumexp(terms, axis=0)
        step = (total - mixed) / (slopes[:, None] * np.exp(terms - total)).sum(axis=0)
        found = found + step
        if np.all(np.abs(step) <= _EXACT * (1 + np.abs(found))):
            return found
    raise OutputsNotFound("the outputs of a grid of losses were not found")
