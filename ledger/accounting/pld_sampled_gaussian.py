"""The discretised privacy loss distribution (PLD) of one Poisson-sampled Gaussian step, by whole arrays.

It is dp_accounting's own ``from_gaussian_mechanism``: its bounds of the grid, its connect-the-dots (Doroshenko, Ghazi,
Kamath, Kumar, Manurangsi 2022). The library looks for the output of each loss in a Python loop over the grid, which
takes nearly all of the time; here that inverse is one expression over the grid.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from dp_accounting.pld.pld_pmf import DensePLDPmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

if TYPE_CHECKING:
    from numpy.typing import NDArray


_ROUNDING: Final = 1e-12


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
