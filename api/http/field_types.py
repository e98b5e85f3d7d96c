"""Types of the fields of requests, answers and paths: each declares its pattern, its bounds and what it means.

They are the field types of :mod:`ledger.wire.field_types` with a description, and those that only the API knows.
:func:`schema_of` gives the JSON Schema (2020-12) of any type that is made up of them.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Annotated, Any, Final

from fastapi import Path, Query
from msgspec import Meta

from ledger.wire import field_types as wire
from ledger.wire.json_schema import json_schemas

Schema = dict[str, Any]

_INTEGER_MAX: Final = 2**53 - 1
_BUNDLE: Final = r"(x[0-9]{3}/)*[0-9]{3}(\.p/[1-9][0-9]{0,2})?$"

Count = Annotated[int, Meta(ge=1, le=_INTEGER_MAX)]
Natural = Annotated[int, Meta(ge=0, le=_INTEGER_MAX)]
Index = Annotated[int, Meta(ge=0, le=_INTEGER_MAX, description="an index in the log")]
Node = Annotated[int, Meta(ge=0, le=_INTEGER_MAX, description="a node of the lineage, by the index of its entry")]
Steps = Annotated[int, Meta(ge=0, le=_INTEGER_MAX, description="logical steps")]
Time = Annotated[int, Meta(ge=0, le=_INTEGER_MAX, description="Unix milliseconds")]
Records = Annotated[int, Meta(ge=1, le=_INTEGER_MAX, description="a public lower bound on the number of records")]

Number = Annotated[Fraction, Meta(description="a decimal without trailing zeros, or a ratio; never a float")]
ReportedNumber = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+|/[0-9]+)?$", description="an exact decimal or ratio")]
"""An exact number that is computed, of any length: it is reported, and never sent to the service."""
RoundedUp = Annotated[str, Meta(pattern=r"^[0-9]+\.[0-9]{4}$", description="four digits after the point, rounded up")]
Digest = Annotated[wire.Sha256, Meta(description="SHA-256 in lower-case hexadecimal")]
Ref = Annotated[wire.Ref, Meta(description="provider/dataset/partition")]
Holder = Annotated[
    str, Meta(pattern="^(global|lineage:(0|[1-9][0-9]{0,15}))$", description="everyone, or one lineage by its node")
]
Base64Url = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]+$", description="bytes in base64url")]
KeyBytes = Annotated[wire.KeyBytes, Meta(description="32 bytes in base64url")]
Cursor = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]+$", description="the cursor of the next page, opaque")]
EntityTag = Annotated[str, Meta(pattern='^"[A-Za-z0-9_-]{22}"$', description="a strong entity tag")]
DetachedJws = Annotated[str, Meta(min_length=1, max_length=2048, description="a detached JWS")]
Always = Annotated[bool, Meta(extra_json_schema={"const": True})]


def one_of(*words: str) -> Meta:
    """A string that is one of these words."""
    return Meta(extra_json_schema={"enum": [*words]})


@cache
def schema_of(kind: Any) -> Schema:  # noqa: ANN401 - any type that msgspec reads
    """The JSON Schema of a type. Records in it are inlined where they are used, with their names as titles."""
    (schema,), parts = json_schemas(kind)
    inlined: Schema = _inlined(schema, parts, ())
    return inlined


def _inlined(schema: Any, parts: Schema, above: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON Schema
    if isinstance(schema, list):
        return [_inlined(item, parts, above) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$defs" in schema:
        # The schema of a registered type brings its own parts.
        own = {key: value for key, value in schema.items() if key != "$defs"}
        return _inlined(own, {**parts, **schema["$defs"]}, above)
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        # Titles of generic records name their parameters, as in Page[Charge]: those are not shared.
        shown = {key: value for key, value in schema.items() if key != "title" or "[" not in str(value)}
        if isinstance(text := shown.get("description"), str):
            shown["description"] = text.partition("\n\n")[0]
        return {key: _inlined(value, parts, above) for key, value in shown.items() if key != "discriminator"}
    name = reference.rpartition("/")[2]
    if name in above or name not in parts:
        return {"$ref": f"#/components/schemas/{name}"}
    rest = {key: value for key, value in schema.items() if key != "$ref"}
    return {**_inlined(parts[name], parts, (*above, name)), **rest}


def _path(kind: Any, description: str) -> Any:  # noqa: ANN401 - a type, and what the framework makes of it
    return Path(json_schema_extra={**schema_of(kind), "description": description})


def _matching(form: str) -> Any:  # noqa: ANN401 - a type
    return Annotated[str, Meta(pattern=form)]


_PARTITION: Final = "a partition: provider/dataset/partition"
PathDid = Annotated[str, _path(wire.Did, "an organisation")]
PathName = Annotated[str, _path(wire.Name, "the id that it was given")]
PathDigest = Annotated[str, _path(wire.Sha256, "the SHA-256 digest of its bytes")]
PathHolder = Annotated[str, _path(Holder, "everyone, or one lineage by its node")]
_LEVEL: Final = "level and place, as C2SP tlog-tiles writes them"
PathTile = Annotated[str, _path(_matching(f"^(0|[1-9][0-9]?)/{_BUNDLE}"), _LEVEL)]
PathBundle = Annotated[str, _path(_matching(f"^{_BUNDLE}"), "place, as C2SP tlog-tiles writes it")]
PathRef = Annotated[str, _path(Ref, _PARTITION)]
QueryRef = Annotated[str, Query(json_schema_extra={**schema_of(Ref), "description": _PARTITION})]
