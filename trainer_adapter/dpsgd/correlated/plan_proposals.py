"""A plan with correlated noise for a target that a plan of DP-SGD would keep, and which of them has the least error.

A round of b bands takes what b steps of the training draw together, each record in one of them. So its price is that of
one step with b times the records, and what there is to choose is b: more bands take back more noise, and sampling
hides less. A stream is the other end: one round of all steps, where each record enters once.

The error is of what noise adds to a prefix sum of the gradients, the root mean square over the run. What the records
themselves do is not in it: how far least error is best training, the table in docs/correlated_noise.md says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from ledger.mechanisms.correlated.correlated_plan import CorrelatedPlan
from ledger.mechanisms.correlated.strategies import BANDS_MAX
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.run_plan import RunPlan
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.correlated.strategy_search import banded, buffered, independent_error, prefix_error
from trainer_adapter.job.privacy_target import PrivacyTarget

BANDS: Final = (2, 4, 8, 16, 32, 64)
"""What is tried where a job names no number of bands."""
WORTH: Final = 2 / 3
"""Correlated noise is chosen where it leaves at most this share of what independent noise leaves in a prefix sum."""
_BATCH: Final = "train.privacy.batch_size_expected"
Choose: TypeAlias = Callable[[PrivacyTarget], RunPlan]
"""The plan of DP-SGD with the least noise that keeps a target. Raises: Malformed, if none does."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan that keeps the target, and its error over the clipping norm."""

    plan: Plan | CorrelatedPlan
    error: float

    @property
    def bands(self) -> int:
        """Of its noise: 1 for independent noise."""
        return self.plan.bands if isinstance(self.plan, CorrelatedPlan) else 1

    def to_json(self) -> c.Object:
        """For programs."""
        return {
            "bands": self.bands,
            "error": f"{self.error:.3f}",
            "noise_multiplier": format_number(self.plan.noise_multiplier),
            "plan": self.plan.to_json(),
        }


def independent(target: PrivacyTarget, choose: Choose) -> Proposal:
    """DP-SGD. Raises: Malformed."""
    plan = Plan.of(choose(target))
    return Proposal(plan, float(plan.noise_multiplier) * independent_error(plan.steps))


def correlated(target: PrivacyTarget, bands: int, choose: Choose) -> Proposal:
    """Rounds of so many bands, the last one whole; of all steps, a stream. Raises: Malformed, naming what cannot be."""
    check_bands(target, bands)
    rounds = -(-target.steps // bands)
    one_step = _one_step(target, bands, rounds, choose)
    steps = rounds * bands
    strategy = banded(bands, steps) if bands <= BANDS_MAX else buffered(steps)
    plan = CorrelatedPlan(
        one_step.sampling_probability,
        bands,
        one_step.noise_multiplier,
        one_step.clipping_norm,
        rounds,
        target.batch_size_expected,
        target.unit,
        strategy,
    )
    return Proposal(plan, float(plan.noise_multiplier) * prefix_error(strategy, bands, steps))


def _one_step(target: PrivacyTarget, bands: int, rounds: int, choose: Choose) -> Plan:
    """The training whose steps are the rounds: each draws what ``bands`` steps do."""
    together = bands * target.batch_size_expected
    try:
        return Plan.of(choose(replace(target, batch_size_expected=together, steps=rounds)))
    except Malformed as error:
        if error.field == _BATCH:
            raise Malformed("bands", f"make rounds of {together} records: {error.rule}") from None
        raise


def check_bands(target: PrivacyTarget, bands: int) -> None:
    """Hold a number of bands to the steps. Raises: Malformed."""
    if target.stages is not None:
        raise Malformed("train.privacy", "has stages: correlated noise is for a training alone")
    if bands < 2:
        raise Malformed("bands", "must be at least 2: one band is DP-SGD")
    if bands > target.steps:
        raise Malformed("bands", f"must be at most the steps: {target.steps}")
    if bands > BANDS_MAX and bands != target.steps:
        raise Malformed("bands", f"must be at most {BANDS_MAX}, or all {target.steps} steps: a stream")


def proposals(target: PrivacyTarget, choose: Choose) -> list[Proposal]:
    """DP-SGD, and every number of bands that the steps and records have room for. Raises: Malformed."""
    found = [independent(target, choose)]
    for bands in BANDS:
        if bands > target.steps:
            break
        try:
            found.append(correlated(target, bands, choose))
        except Malformed as error:
            if error.field != "bands":
                raise
            # A round would draw more records than there are.
            break
    return found


def chosen(found: Sequence[Proposal]) -> Proposal:
    """Of proposals for one job, that of independent noise first, the one to train with."""
    least = min(found, key=lambda one: one.error)
    return least if least.error <= WORTH * found[0].error else found[0]
