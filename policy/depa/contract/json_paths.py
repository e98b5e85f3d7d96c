"""A value inside parsed JSON by its path, as reasons spell it, and JSON written with every digit of its numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

import msgspec

from ledger.wire.exact_numbers import format_number

ABSENT: Final = object()
"""Stands for an absent value."""
_TOKEN: Final = re.compile(r"\.?([A-Za-z0-9_-]+)|\[(\d+)\]")


def value_at(top: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401 - JSON
    """The value at a path, as ``contract.datasets[0].id``; ABSENT if there is none."""
    place: Any = top
    for token in _tokens(path):
        try:
            place = place[token]
        except (KeyError, IndexError, TypeError):
            return ABSENT
    return place


def set_value(top: dict[str, Any], path: str, value: Any) -> None:  # noqa: ANN401 - JSON
    """Set the value at a path; the enclosing object must exist."""
    *way, last = _tokens(path)
    place: Any = top
    for token in way:
        place = place[token]
    place[last] = value


def write(value: Any) -> bytes:  # noqa: ANN401 - JSON
    """JSON in one line, fractions as decimals with all their digits. Raises: TypeError for a repeating decimal."""
    return _ENCODER.encode(value)


def write_lines(value: Any) -> bytes:  # noqa: ANN401 - JSON
    """The same, indented for people."""
    return msgspec.json.format(write(value), indent=2) + b"\n"


def _tokens(path: str) -> list[str | int]:
    return [name or int(place) for name, place in _TOKEN.findall(path)]


def _spell(value: object) -> msgspec.Raw:
    text = format_number(abs(value)) if isinstance(value, Fraction) else "/"
    if not isinstance(value, Fraction) or "/" in text:
        raise TypeError(f"{value!r} has no JSON form")
    point = "" if "." in text else ".0"  # as it was read: a whole number with a point is not an integer
    return msgspec.Raw(f"{'-' if value < 0 else ''}{text}{point}".encode())


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_spell)
