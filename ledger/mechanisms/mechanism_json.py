"""Reading mechanisms: strict, bounded, and the exact inverse of ``Mechanism.to_json``."""

from __future__ import annotations

from dataclasses import fields as fields_of
from typing import Any, Final

from ledger.mechanisms.decomposition import atoms, count_selections, to_steps
from ledger.mechanisms.mechanism import INTEGERS, KINDS, NUMBERS, WORDS, Mechanism
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import parse_number
from ledger.wire.malformed import Malformed

LEAVES_MAX: Final = 16
"""Mechanisms inside one, each priced by itself, so that pricing ends soon."""
SELECTIONS_MAX: Final = 2
DEPTH_MAX: Final = 6


def parse_mechanism(value: object, depth: int = DEPTH_MAX) -> Mechanism:
    """Read a mechanism of any kind; the exact inverse of ``to_json``. Raises: Malformed, after bounded work."""
    if depth == 0:
        raise Malformed("", f"is nested deeper than {DEPTH_MAX} mechanisms")
    if not isinstance(value, dict):
        raise Malformed("", "must be an object")
    known = KINDS.get(kind) if isinstance(kind := value.get("kind"), str) else None
    if known is None:
        named = "is missing" if kind is None else f"{str(kind)[:40]!r} is not a mechanism this ledger knows"
        raise Malformed("kind", named)
    names = tuple(field.name for field in fields_of(known))
    given = c.fields(value, "", ("kind", "v", *names))
    c.integer(given["v"], "v", 1, 1)
    found = known(**{name: _read(given[name], name, depth) for name in names})
    if sum(1 for _ in atoms(found)) > LEAVES_MAX:
        raise Malformed("", f"holds more than {LEAVES_MAX} mechanisms")
    to_steps(found)
    if count_selections(found) > SELECTIONS_MAX:
        raise Malformed("", f"holds more than {SELECTIONS_MAX} selections")
    return found


def _read(value: object, name: str, depth: int) -> Any:  # noqa: ANN401 - whatever the field holds
    if name in NUMBERS:
        return parse_number(value, name)
    if name in INTEGERS:
        return c.integer(value, name, *INTEGERS[name])
    if name in WORDS:
        return c.one_of(value, name, WORDS[name])
    if name == "mechanism":
        return _inner(value, name, depth)
    if not isinstance(value, list) or not 1 <= len(value) <= LEAVES_MAX:
        raise Malformed(name, f"must be a list of 1 to {LEAVES_MAX} mechanisms")
    return tuple(_inner(one, f"{name}[{place}]", depth) for place, one in enumerate(value))


def _inner(value: object, name: str, depth: int) -> Mechanism:
    try:
        return parse_mechanism(value, depth - 1)
    except Malformed as fault:
        raise fault.under(name) from None
