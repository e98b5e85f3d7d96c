"""Changes of plain data by path: ``"policies|0|run|epsilon_max"`` is the field of a field of a list's first item."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

GONE: Final = object()
"""As a value in a change: take the field away."""


def changed(value: dict[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with each path set, taken away (GONE), or appended (an index one past the end)."""
    value = copy.deepcopy(value)
    for path, new in change.items():
        *way, last = path.split("|")
        place: Any = value
        for step in way:
            place = place[int(step)] if isinstance(place, list) else place[step]
        if isinstance(place, list):
            place[int(last) :] = [new, *place[int(last) + 1 :]]
        elif new is GONE:
            del place[last]
        else:
            place[last] = new
    return value
