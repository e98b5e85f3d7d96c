"""Calibration: the least noise for a target (ε, δ), or the most steps for a given noise.

An evaluation takes tenths of a second, so a coarse bound narrows the search first, and the reported ε decides.
Both sides of a result were evaluated: it keeps the target, and its neighbour does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ledger.accounting.epsilon_report import estimate_epsilon, reported_epsilon
from ledger.mechanisms.decomposition import group_privacy
from ledger.mechanisms.mechanism import NOISE_MAX, NOISE_MIN, Mechanism, PoissonGaussian
from ledger.wire.malformed import Malformed

NOISE_PLACES: Final = 10_000
"""The search's resolution: ten-thousandths of the noise multiplier."""
_NOISE_LEAST: Final = int(NOISE_MIN * NOISE_PLACES)
_NOISE_MOST: Final = int(NOISE_MAX * NOISE_PLACES)
_GUESS: Final = 1_000
_LEAP: Final = 1.0
_PATIENCE: Final = 5
_TINY: Final = 1e-15
_FAR: Final = 1e6
_NEAR: Final = 1e-4
"""Places closer than this, as logarithms, give no slope: the noise of the grids would decide it."""


def calibrate_noise(  # noqa: PLR0913, PLR0917 - the numbers of a run, and whom it protects
    probability: Fraction,
    steps: int,
    epsilon: Fraction,
    delta: Fraction,
    relation: str = "REPLACE_SPECIAL",
    group: int = 1,
) -> Fraction:
    """The least noise multiplier, to four decimals, for which ``steps`` sampled steps keep (ε, δ).

    Args:
        group: of so many records together.

    Raises:
        Malformed: if no permitted noise multiplier is enough.
    """

    def of(noise: int) -> Mechanism:
        return group_privacy(group, PoissonGaussian(probability, Fraction(noise, NOISE_PLACES), steps))

    least = least_noise(of, epsilon, delta, relation)
    if least is None:
        raise Malformed("epsilon", "cannot be kept by any permitted noise multiplier")
    return least


def least_noise(of: Callable[[int], Mechanism], epsilon: Fraction, delta: Fraction, relation: str) -> Fraction | None:
    """The least noise for which ``of(noise in ten-thousandths)`` keeps (ε, δ); None if no permitted one does.

    Raises:
        NotPriced: if there is no proof for such a mechanism under this relation.
    """
    excess, near = _excesses(of, epsilon, delta, relation)
    good, bad = _NOISE_MOST, _NOISE_LEAST - 1
    place = find_crossing(excess, good, bad, find_crossing(near, good, bad, Crossing(NOISE_PLACES, -1.5))).place
    return None if place == good and excess(good) > 0 else Fraction(place, NOISE_PLACES)


def most_steps(of: Callable[[int], Mechanism], epsilon: Fraction, delta: Fraction, relation: str, most: int) -> int:
    """The most steps, up to ``most``, for which ``of(steps)`` keeps (ε, δ); 0 if not even one does.

    Raises:
        NotPriced: if there is no proof for such a mechanism under this relation.
    """
    excess, near = _excesses(of, epsilon, delta, relation)
    return find_crossing(excess, 0, most + 1, find_crossing(near, 0, most + 1, Crossing(_GUESS, 0.7))).place


def _excesses(
    of: Callable[[int], Mechanism], epsilon: Fraction, delta: Fraction, relation: str
) -> tuple[Callable[[int], float], Callable[[int], float]]:
    """How far the reported and the estimated ε exceed ε, as logarithms; at most 0 where they do not."""

    def reported(place: int) -> float:
        try:
            return log_excess(reported_epsilon(of(place), delta, relation), epsilon)
        except Malformed:
            return _FAR

    def estimated(place: int) -> float:
        return log_excess(estimate_epsilon(of(place), delta, relation), epsilon)

    return reported, estimated


def log_excess(value: Fraction | None, most: Fraction, *, holds: bool | None = None) -> float:
    """By how much a value exceeds its maximum, as a logarithm; at most 0 where it does not. See :func:`find_crossing`.

    Args:
        value: None if it is infinite or unknown.
        holds: whether it is within, where another test than ``value <= most`` decides.
    """
    within = holds if holds is not None else value is not None and value <= most
    far = math.log(value / most) if value and most else None
    # The sign is decided exactly.
    if within:
        return -_FAR if far is None else min(far, 0.0)
    return _FAR if far is None else max(far, _TINY)


@dataclass(frozen=True, slots=True)
class Crossing:
    """A place where a monotone test changes, and its slope: the excess gained as the place grows e-fold."""

    place: int
    slope: float


def find_crossing(excess: Callable[[int], float], good: int, bad: int, guess: Crossing) -> Crossing:
    """Root finding on a monotone test: the last place that holds on the way from ``good`` to ``bad``.

    Secants in the logarithm of the place; if five of them do not halve the range's logarithm, it is bisected.
    ``good`` itself and ``bad`` are taken as known.

    Args:
        excess: at most 0 where the test holds; how far it is from turning, roughly.
        guess: the first place to test.
    """
    seen: dict[int, float] = {}
    slope, aim, width = guess.slope, math.log(max(1, guess.place)), math.inf
    while abs(bad - good) > 1:
        low, high = sorted((good, bad))
        place = min(high - 1, max(low + 1, high if aim > math.log(high) else int(math.exp(aim))))
        beyond = seen[place] = excess(place)
        good, bad = (place, bad) if beyond <= 0 else (good, place)
        slope = _slope(seen, slope)
        aim = math.log(place) - min(_LEAP, max(-_LEAP, beyond / slope))
        far = abs(beyond) >= _FAR
        if far or len(seen) % _PATIENCE == 0:
            ends = math.log(max(1, good)), math.log(max(1, bad))
            now = abs(ends[1] - ends[0])
            aim = sum(ends) / 2 if far or now > width / 2 else aim
            width = now
    return Crossing(good, slope)


def _slope(seen: Mapping[int, float], before: float) -> float:
    """Between the last two places; the slope before them where they are too close."""
    if len(seen) < 2:
        return before
    (one, first), (other, last) = (*seen.items(),)[-2:]
    run, rise = math.log(other) - math.log(one), last - first
    if abs(run) < _NEAR or max(abs(first), abs(last)) >= _FAR or rise / run * before <= 0:
        return before
    return rise / run
