"""The privacy parameters that a training stage requests, in the four spellings that were ever shipped.

    "privacy_params": {"epsilon": 1.0, "delta": 0.01, "max_grad_norm": 0.1}
    "privacy_params": {"epsilon_threshold": 1.0, ...}
    "epsilon_threshold": 1.0, "delta": 0.01, "max_grad_norm": 0.1
    "EPSILON": 1.0, "DELTA": 0.01, "MAX_GRAD_NORM": 0.1

Said twice in different spellings they contradict one another, or may: that is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ledger.mechanisms.plan import CLIPPING_MAX
from ledger.wire.exact_numbers import EPSILON_MAX
from policy.depa.contract.field_reader import Fields
from policy.depa.contract.privacy_constraints import DELTA_MOST, LEAST

_EPSILON: Final = ("epsilon", "epsilon_threshold", "EPSILON")
_DELTA: Final = ("delta", "DELTA")
_CLIPPING: Final = ("max_grad_norm", "MAX_GRAD_NORM")
SPELLINGS: Final = (*_EPSILON, *_DELTA, *_CLIPPING)
_INNER: Final = "privacy_params"


@dataclass(frozen=True, slots=True)
class RequestedPrivacy:
    """The parameters of a stage; None where they are absent, or a reason explains why.

    Attributes:
        stated: whether the stage states an ε.
        path: the place of the ε; ``delta_path`` likewise.
    """

    epsilon: Fraction | None
    delta: Fraction | None
    clipping: Fraction | None
    stated: bool
    path: str
    delta_path: str


def read_requested(known: Fields, *, trees: bool) -> RequestedPrivacy:
    """Read the parameters of a stage; boosted trees need neither δ nor a clipping norm, since their ε is pure."""
    places = [known]
    if known.value.get(_INNER) is not None:
        inner = known.inner(_INNER)
        inner.only((*SPELLINGS, "clip_value", "mechanism"))
        places.insert(0, inner)
    epsilon, delta, clipping = (_find(places, names) for names in (_EPSILON, _DELTA, _CLIPPING))
    none = trees and (delta is None or delta[0].value[delta[1]] is None)
    return RequestedPrivacy(
        epsilon=_number(epsilon, EPSILON_MAX),
        delta=None if none else _number(delta, DELTA_MOST),
        clipping=_number(clipping, CLIPPING_MAX),
        stated=epsilon is not None,
        path=_path(known, epsilon, "epsilon"),
        delta_path=_path(known, delta, "delta"),
    )


def require(known: Fields, *, trees: bool) -> None:
    """Note what a private stage must say and does not."""
    names = ("epsilon",) if trees else ("epsilon", "delta", "max_grad_norm")
    spelled = {"epsilon": _EPSILON, "delta": _DELTA, "max_grad_norm": _CLIPPING}
    inner = known.value.get(_INNER)
    for name in names:
        held = {*known.value, *(inner if isinstance(inner, dict) else ())}
        if not held.intersection(spelled[name]):
            known.reasons.refuse("field_missing", f"{known.at(_INNER)}.{name}")


def _find(places: list[Fields], names: tuple[str, ...]) -> tuple[Fields, str] | None:
    found = [(place, name) for place in places for name in names if place.has(name)]
    for place, name in found[1:]:
        first = found[0][0].at(found[0][1])
        place.reasons.refuse("field_twice", place.at(name), place.value[name], f"also {first}")
    return found[0] if found else None


def _number(found: tuple[Fields, str] | None, most: Fraction) -> Fraction | None:
    return found[0].number(found[1], LEAST, most) if found else None


def _path(known: Fields, found: tuple[Fields, str] | None, name: str) -> str:
    return found[0].at(found[1]) if found else f"{known.at(_INNER)}.{name}"
