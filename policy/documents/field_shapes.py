"""Shapes of fields: how each is read, and how JSON Schema says the same (2020-12).

A document is described once, by a :func:`record`. Its reader and its published schema both come of that, so they
cannot drift apart. What one field's schema cannot say (a bound on a ratio, a calendar, fields held against one
another) the reader checks; so the schema admits everything that the reader admits, and little more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from ledger.crypto.public_keys import PublicKey
from ledger.mechanisms.plan import parse_plan
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import parse_positive
from ledger.wire.malformed import Malformed
from policy.checks import field_readers as r

Schema = dict[str, Any]
_NUMBER: Final = r"^((0|[1-9][0-9]{0,17})(\.[0-9]{0,17}[1-9])?|[1-9][0-9]{0,17}/[1-9][0-9]{0,17})$"
_BASE64URL_32: Final = r"^[A-Za-z0-9_-]{43}$"


@dataclass(frozen=True, slots=True)
class Shape:
    """One field's reader, given a value and its path, and its JSON Schema."""

    read: Callable[[Any, str], Any]
    schema: Schema


@dataclass(frozen=True, slots=True)
class Record:
    """An object with exactly these fields. Reading it gives each field's value; an absent optional one is absent."""

    required: Mapping[str, Shape]
    optional: Mapping[str, Shape]
    kind: str = ""

    def read(self, value: Any, where: str = "") -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Each field read. Raises: Malformed, for the first that breaks a rule."""
        if self.kind and isinstance(value, dict) and value.get("kind") != self.kind:
            raise Malformed("kind", f"must be '{self.kind}'")
        known = c.fields(value, where, tuple(self.required), tuple(self.optional))
        shapes = {**self.required, **self.optional}
        return {name: shapes[name].read(known[name], f"{where}.{name}" if where else name) for name in known}

    @property
    def schema(self) -> Schema:
        """An object of JSON Schema that admits no other field."""
        shapes = {**self.required, **self.optional}
        return {
            "additionalProperties": False,
            "properties": {name: shapes[name].schema for name in sorted(shapes)},
            "required": sorted(self.required),
            "type": "object",
        }

    @property
    def shape(self) -> Shape:
        """As a field of another."""
        return Shape(self.read, self.schema)


def record(required: Mapping[str, Shape], optional: Mapping[str, Shape] | None = None) -> Record:
    """An object of these fields."""
    return Record(required, optional or {})


def document(kind: str, required: Mapping[str, Shape], optional: Mapping[str, Shape] | None = None) -> Record:
    """A document of one kind, version 1 of its form."""
    tags = {"kind": Shape(c.string, {"const": kind}), "v": integer(1, 1)}
    return Record({**tags, **required}, optional or {}, kind)


def integer(least: int, most: int) -> Shape:
    """An integer within bounds."""
    schema = {"maximum": most, "minimum": least, "type": "integer"}
    return Shape(lambda value, where: c.integer(value, where, least, most), schema)


def text(longest: int) -> Shape:
    """Text for people."""
    schema = {"maxLength": longest, "minLength": 1, "type": "string"}
    return Shape(lambda value, where: c.string(value, where, longest), schema)


def word(*choices: str) -> Shape:
    """One of a closed list."""
    return Shape(lambda value, where: c.one_of(value, where, choices), {"enum": list(choices)})


def words(*choices: str) -> Shape:
    """One or more of a closed list, none twice."""
    return Shape(
        lambda value, where: r.subset(value, where, choices),
        {
            "items": {"enum": list(choices)},
            "maxItems": len(choices),
            "minItems": 1,
            "type": "array",
            "uniqueItems": True,
        },
    )


def listed(item: Shape, most: int, what: str, least: int = 1) -> Shape:
    """A list of ``least`` to ``most`` different items, as a tuple."""

    def read(value: object, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list) or not least <= len(value) <= most:
            raise Malformed(where, f"must be a list of {least} to {most} {what}")
        found = tuple(item.read(one, f"{where}[{place}]") for place, one in enumerate(value))
        if any(one in found[:place] for place, one in enumerate(found)):
            raise Malformed(where, "names an item twice")
        return found

    schema = {"items": item.schema, "maxItems": most, "minItems": least, "type": "array", "uniqueItems": True}
    return Shape(read, schema)


FLAG: Final = Shape(c.boolean, {"type": "boolean"})
NAME: Final = Shape(c.name, {"pattern": r"^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$", "type": "string"})
DID: Final = Shape(
    c.did,
    {
        "maxLength": 255,
        "pattern": r"^did:[a-z0-9]{1,32}:[A-Za-z0-9._%-]{1,200}(:[A-Za-z0-9._%-]{1,200}){0,8}$",
        "type": "string",
    },
)
TIME: Final = Shape(
    r.parse_time,
    {"pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$", "type": "string"},
)
VERSION: Final = integer(1, r.VERSION_MAX)
EPSILON: Final = Shape(r.parse_epsilon, {"pattern": _NUMBER, "type": "string"})
DELTA: Final = Shape(r.parse_delta, {"pattern": _NUMBER, "type": "string"})


def _share(value: object, where: str) -> Fraction:
    share = parse_positive(value, where)
    if share > 1:
        raise Malformed(where, "must be at most 1")
    return share


SHARE: Final = Shape(_share, {"pattern": _NUMBER, "type": "string"})
PROBABILITY: Final = SHARE
NOISE: Final = Shape(parse_positive, {"pattern": _NUMBER, "type": "string"})


def _ed25519(value: object, where: str) -> PublicKey:
    return PublicKey.parse(value, where, "Ed25519")


ED25519: Final = Shape(
    _ed25519,
    record(
        {
            "crv": Shape(c.string, {"const": "Ed25519"}),
            "kty": Shape(c.string, {"const": "OKP"}),
            "x": Shape(c.string, {"pattern": _BASE64URL_32, "type": "string"}),
        }
    ).schema,
)


def _plan(value: object, where: str) -> Any:  # noqa: ANN401 - a plan of either kind
    try:
        return parse_plan(value)
    except Malformed as error:
        raise error.under(where) from None


PLAN: Final = Shape(_plan, {"type": "object"})
