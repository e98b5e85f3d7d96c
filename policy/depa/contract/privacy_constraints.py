"""Privacy constraints of a DEPA contract, in both spellings, one bound for each dataset named.

"constraints":[{"privacy":[{"dataset":"19517ba8-...","epsilon_threshold":"1.5","delta":"0.01"}]}]
"constraints":{"data":[{"id":"19517ba8-...","privacy":{"epsilon":"1.5","delta":"0.01"}}]}
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from ledger.mechanisms.mechanism import NOISE_MAX
from ledger.wire.exact_numbers import EPSILON_MAX
from policy.depa.contract.field_reader import Fields
from policy.documents.contract import DATASETS_MAX

LEAST: Final = Fraction(1, 10**12)
"""The least positive number that is accepted: a smaller one would mean nothing."""
DELTA_MOST: Final = 1 - LEAST
_CONSTRAINTS_MAX: Final = 64
_NAMES_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Bound:
    """The bounds of one dataset on one run; None if the contract states none, or a reason explains why.

    Attributes:
        noise: the least noise multiplier.
        targets: the variables that may be predicted, none if it is empty; None if any may.
        join_keys: the variables that may join it, likewise.
    """

    path: str
    dataset: str | None
    epsilon: Fraction | None
    delta: Fraction | None
    noise: Fraction | None
    targets: tuple[str, ...] | None = None
    join_keys: tuple[str, ...] | None = None


def read_bounds(top: Fields) -> tuple[Bound, ...]:
    """Every bound of a contract, in order. None for a contract without ``constraints``: its datasets lack them."""
    if not top.has("constraints"):
        return ()
    listed = isinstance(top.value["constraints"], list)
    parts = top.objects("constraints", _CONSTRAINTS_MAX, least=0) if listed else (top.inner("constraints"),)
    return tuple(bound for part in parts for bound in _of_constraint(part))


def _of_constraint(fields: Fields) -> Iterator[Bound]:
    fields.only(("compute", "data", "fetch", "privacy"))
    fields.unread("compute", "fetch")
    for name, read in (("privacy", _read_shipped), ("data", _read_specified)):
        if fields.has(name):
            yield from map(read, fields.objects(name, DATASETS_MAX, least=0))


def _read_shipped(fields: Fields) -> Bound:
    fields.only(("dataset", "delta", "epochs_per_report", "epsilon_threshold", "noise_multiplier"))
    if fields.has("epochs_per_report"):
        fields.whole("epochs_per_report", 1, 1_000_000)
    fields.unread("epochs_per_report")
    return _bound(fields.path, fields.name("dataset"), fields, "epsilon_threshold")


def _read_specified(fields: Fields) -> Bound:
    fields.only(("id", "join", "privacy", "target_variables"))
    privacy = fields.inner("privacy")
    privacy.only(("delta", "epsilon", "noise_multiplier"))
    targets, keys = (_names(fields, name) for name in ("target_variables", "join"))
    bound = _bound(fields.path, fields.name("id"), privacy, "epsilon")
    return replace(bound, targets=targets, join_keys=keys)


def _bound(path: str, dataset: str | None, privacy: Fields, epsilon: str) -> Bound:
    """The numbers of a bound; the name of the ε differs between spellings."""
    noise = privacy.number("noise_multiplier", LEAST, NOISE_MAX) if privacy.has("noise_multiplier") else None
    most = privacy.number(epsilon, LEAST, EPSILON_MAX)
    return Bound(path, dataset, most, privacy.number("delta", LEAST, DELTA_MOST), noise)


def _names(fields: Fields, name: str) -> tuple[str, ...] | None:
    """A list of permitted names. An empty one permits none: only where there is no list may any be used."""
    if not fields.has(name):
        return None
    # Our contract has no such member, so another pipeline under it is not held to the list.
    fields.reasons.warn("bound_not_carried", fields.at(name), fields.value[name])
    listed = fields.items(name, _NAMES_MAX, least=0)
    for place, name_ in enumerate(listed):
        if not isinstance(name_, str):
            fields.reasons.refuse("field_type", f"{fields.at(name)}[{place}]", name_, "must be a string")
    return tuple(item for item in listed if isinstance(item, str))
