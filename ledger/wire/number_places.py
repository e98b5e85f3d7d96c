"""Where the first number stands that our JSON has no room for, so that its error names the member."""

from __future__ import annotations

import json


def place_of_number(text: str, most: int, what: str = "") -> str:
    """The dotted path of the first float, or integer beyond ``most``, in a JSON text; ``what`` where there is none.

    It reads the text a second time, without a limit on depth but the interpreter's: for texts of bounded size.
    """
    try:
        left: list[tuple[str, object]] = [(what, json.loads(text))]
    except (ValueError, RecursionError):
        return what
    while left:
        place, value = left.pop()
        if isinstance(value, float) or (isinstance(value, int) and abs(value) > most):
            return place
        if isinstance(value, dict):
            # A name may hold half a character, which no answer can.
            names = ((name[:80].encode("utf-8", "replace").decode(), member) for name, member in value.items())
            within = [(f"{place}.{name}" if place else name, member) for name, member in names]
        elif isinstance(value, list):
            within = [(f"{place}[{number}]", item) for number, item in enumerate(value)]
        else:
            continue
        # The first one is taken next, so that places come in the order of the text.
        left += reversed(within)
    return what
