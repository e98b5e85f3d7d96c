"""What one run may be at most, beyond its ε: in a policy for its domain, in a contract for its runs."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from ledger.mechanism import KINDS, STEPS_MAX
from policy.documents import shapes as s

TUNING: Final = "repeat_and_select"
MECHANISMS: Final = tuple(kind for kind in KINDS if kind not in {"composed", "group", "self_composed"})
"""What holds others is permitted if all it holds is; tuning is a mechanism of its own."""


@dataclass(frozen=True, slots=True)
class RunBounds:
    """Bounds on one run; None where nothing is said.

    Attributes:
        delta_max: the largest δ that the run's ε may be told at: the partition's own.
        noise_multiplier_min: every mechanism inside must state at least as much noise.
        probability_max: every sampling inside takes a record with at most this probability.
        mechanisms: of a contract, which kinds; a policy names its own for the whole domain.
    """

    delta_max: Fraction | None = None
    noise_multiplier_min: Fraction | None = None
    probability_max: Fraction | None = None
    steps_max: int | None = None
    mechanisms: tuple[str, ...] | None = None


UNBOUNDED: Final = RunBounds()
_BOUNDS: Final = {
    "delta_max": s.DELTA,
    "noise_multiplier_min": s.NOISE,
    "probability_max": s.PROBABILITY,
    "steps_max": s.integer(1, STEPS_MAX),
}
POLICY_RUN: Final = s.record({"epsilon_max": s.EPSILON}, _BOUNDS).shape
CONTRACT_RUN: Final = s.record({"epsilon_max": s.EPSILON}, {**_BOUNDS, "mechanisms": s.words(*MECHANISMS)}).shape


def bounds_of(run: dict[str, Any]) -> RunBounds:
    """The bounds of a ``run`` that was read, beyond its ε."""
    return RunBounds(**{name: value for name, value in run.items() if name != "epsilon_max"})
