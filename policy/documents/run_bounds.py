"""The bounds on one run: in a policy for its domain, in a contract for its runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Annotated, Final, TypeVar

from ledger.mechanisms.decomposition import atoms, kinds_of
from ledger.mechanisms.mechanism import KINDS, BlackBox, Mechanism, Pure, SampledWithoutReplacement, Steps, Zcdp
from ledger.mechanisms.run_plan import RunPlan
from ledger.mechanisms.statistics_plans import StagedPlan
from ledger.wire.exact_numbers import format_number
from ledger.wire.field_types import Positive, distinct, words
from ledger.wire.records import Record
from policy.documents.document import Delta, Epsilon, Share

TUNING: Final = "repeat_and_select"
_PLACES: Final = 10**6
MECHANISMS: Final = tuple(kind for kind in KINDS if kind not in {"composed", "group", "self_composed"})
"""Mechanisms that are permitted if all mechanisms inside are; tuning is a mechanism of its own."""
Mechanisms = Annotated[tuple[Annotated[str, words(*MECHANISMS)], ...], distinct(len(MECHANISMS))]


class RunLimits(Record, frozen=True, kw_only=True):
    """A document's limits on one run; an absent limit does not bind.

    Attributes:
        epsilon_max: the cap on its ε, at the partition's δ.
        delta_max: the largest δ that the run's ε may be at: the partition's own.
        noise_multiplier_min: every mechanism inside must state at least as much noise.
        probability_max: every sampling inside draws a record with at most this probability.
    """

    epsilon_max: Epsilon
    delta_max: Delta | None = None
    noise_multiplier_min: Positive | None = None
    probability_max: Share | None = None
    steps_max: Steps | None = None


class ContractRunLimits(RunLimits, frozen=True, kw_only=True):
    """A contract's limits on its runs, mechanisms included. A policy states mechanisms for the whole domain."""

    mechanisms: Mechanisms | None = None


class RunBounds(Record, frozen=True):
    """The limits of one run beyond its ε; null where there is none."""

    delta_max: Fraction | None
    noise_multiplier_min: Fraction | None
    probability_max: Fraction | None
    steps_max: Steps | None
    mechanisms: tuple[str, ...] | None

    def bars(self, delta: Fraction, plan: RunPlan) -> str:
        """Why no step of a plan may run at a partition's δ, whatever its ε; empty if some may."""
        whole = plan.mechanism(plan.steps)
        if self.delta_max is not None and delta > self.delta_max:
            return f"a run's δ may be at most {format_number(self.delta_max)}"
        if self.mechanisms is not None and (others := set(kinds_of(whole)).difference(self.mechanisms)):
            return f"the mechanism {min(others)} is not permitted"
        for leaf in atoms(whole):
            noise = noise_multiplier_of(leaf, plan)
            if (least := self.noise_multiplier_min) is not None and (noise is None or noise < least):
                return f"the noise multiplier must be at least {format_number(least)}"
            if (most := self.probability_max) is not None and probability_of(leaf) > most:
                return f"a record may be sampled with a probability of at most {format_number(most)}"
        return ""


def noise_multiplier_of(leaf: Mechanism, plan: RunPlan) -> Fraction | None:
    """The noise multiplier that a mechanism inside a plan states, rounded down; None if it states none.

    The statistics of a staged plan state it by their price: discrete Laplace noise of ε has the scale 1/ε over the L1
    sensitivity (private categories too: their δ is the threshold's), permute-and-flip twice that, and discrete Gaussian
    noise of ρ the deviation 1/√(2ρ) over the L2 sensitivity
    (:func:`ledger.mechanisms.statistic_prices.noise_of`). Other ε-DP or zCDP mechanisms may have no comparable noise.
    """
    if isinstance(plan, StagedPlan) and isinstance(leaf, BlackBox | Pure):
        return 1 / leaf.epsilon
    if isinstance(plan, StagedPlan) and isinstance(leaf, Zcdp):
        return Fraction(math.isqrt(int(_PLACES**2 / (2 * leaf.rho))), _PLACES)
    stated: Fraction | None = getattr(leaf, "noise_multiplier", None)
    return stated


def probability_of(leaf: Mechanism) -> Fraction:
    """The sampling probability of a step: 1 where nothing is sampled."""
    if isinstance(leaf, SampledWithoutReplacement):
        return Fraction(leaf.sample, leaf.population)
    return Fraction(getattr(leaf, "probability", 1))


def strictest(stated: Sequence[RunBounds | RunLimits]) -> RunBounds:
    """The strictest of several limits."""
    kinds_stated = [set(kinds) for limits in stated if (kinds := getattr(limits, "mechanisms", None)) is not None]
    allowed = kinds_stated[0].intersection(*kinds_stated[1:]) if kinds_stated else None
    return RunBounds(
        delta_max=_least(limits.delta_max for limits in stated),
        noise_multiplier_min=max(
            (limits.noise_multiplier_min for limits in stated if limits.noise_multiplier_min is not None), default=None
        ),
        probability_max=_least(limits.probability_max for limits in stated),
        steps_max=_least(limits.steps_max for limits in stated),
        mechanisms=None if allowed is None else tuple(kind for kind in MECHANISMS if kind in allowed),
    )


_Number = TypeVar("_Number", int, Fraction)


def _least(stated: Iterable[_Number | None]) -> _Number | None:
    return min((value for value in stated if value is not None), default=None)
