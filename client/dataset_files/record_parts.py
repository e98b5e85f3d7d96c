"""The parts of a record, inputs and targets, and which arrays of a file make them.

A part is one array, as ``inputs``, or several, whose names say where they are in it: ``inputs.input_ids`` and
``inputs.attention_mask`` are a dictionary of two. A name may go deeper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ledger.wire.malformed import Malformed

INPUTS: Final = "inputs"
TARGETS: Final = "targets"
PARTS: Final = (INPUTS, TARGETS)


def names_of(part: str, names: Iterable[str]) -> tuple[str, ...]:
    """The arrays that make a part, in the order of ``names``; none if there are none."""
    return tuple(name for name in names if name == part or name.startswith(f"{part}."))


def assembled(part: str, arrays: Mapping[str, Any], what: str) -> Any:  # noqa: ANN401 - an array, or dictionaries of them
    """The arrays of a part where their names say. Raises: Malformed, if one name is another's place."""
    if part in arrays and len(arrays) == 1:
        return arrays[part]
    whole: dict[str, Any] = {}
    for name, array in arrays.items():
        *folders, last = name.split(".")[1:] or [""]
        place = whole
        for folder in folders:
            place = place.setdefault(folder, {})
            if not isinstance(place, dict):
                raise _both(what, name)
        if last in place or name == part:
            raise _both(what, name)
        place[last] = array
    return whole


def _both(what: str, name: str) -> Malformed:
    return Malformed(
        what, f"has an array {name} and one whose name goes on from it or ends before it: keep one of both"
    )
