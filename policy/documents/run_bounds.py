"""What one run may be at most, beyond its ε: in a policy for its domain, in a contract for its runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, Final, TypeVar

from msgspec import structs

from ledger.mechanisms.mechanism import KINDS, STEPS_MAX, Steps
from ledger.wire.records import Record
from policy.documents import field_shapes as s

TUNING: Final = "repeat_and_select"
MECHANISMS: Final = tuple(kind for kind in KINDS if kind not in {"composed", "group", "self_composed"})
"""What holds others is permitted if all it holds is; tuning is a mechanism of its own."""


class RunBounds(Record, frozen=True):
    """The limits of one run beyond its ε; null where there is none.

    Attributes:
        delta_max: the largest δ that the run's ε may be at: the partition's own.
        noise_multiplier_min: every mechanism inside must state at least as much noise.
        probability_max: every sampling inside takes a record with at most this probability.
        mechanisms: of a contract, which kinds; a policy names its own for the whole domain.
    """

    delta_max: Fraction | None
    noise_multiplier_min: Fraction | None
    probability_max: Fraction | None
    steps_max: Steps | None
    mechanisms: tuple[str, ...] | None


UNBOUNDED: Final = RunBounds(None, None, None, None, None)
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
    return structs.replace(UNBOUNDED, **{name: value for name, value in run.items() if name != "epsilon_max"})


def strictest(stated: Sequence[RunBounds]) -> RunBounds:
    """What a run must keep that is bound by all of them."""
    named = [set(one.mechanisms) for one in stated if one.mechanisms is not None]
    allowed = named[0].intersection(*named[1:]) if named else None
    return RunBounds(
        delta_max=_least(one.delta_max for one in stated),
        noise_multiplier_min=max(
            (one.noise_multiplier_min for one in stated if one.noise_multiplier_min is not None), default=None
        ),
        probability_max=_least(one.probability_max for one in stated),
        steps_max=_least(one.steps_max for one in stated),
        mechanisms=None if allowed is None else tuple(kind for kind in MECHANISMS if kind in allowed),
    )


_Number = TypeVar("_Number", int, Fraction)


def _least(stated: Iterable[_Number | None]) -> _Number | None:
    return min((one for one in stated if one is not None), default=None)
