"""What is written on the wire, for the OpenAPI document: exact numbers, names, digests, times, and what they make up.

A form is JSON Schema (2020-12). One with a title stands once in the document and is referred to from everywhere else
(:mod:`api.wire.openapi_document`); a form of an object allows no field that it does not name.
"""

from __future__ import annotations

from typing import Any, Final

Form = dict[str, Any]

_DID: Final = r"^did:[a-z0-9]{1,32}:[A-Za-z0-9._%-]{1,200}(:[A-Za-z0-9._%-]{1,200}){0,8}$"
_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$"
_INTEGER_MAX: Final = 2**53 - 1
PLACE_PATTERN: Final = "^(0|[1-9][0-9]{0,15})$"
"""An index or a size in a path or a query."""


def text(pattern: str, description: str = "") -> Form:
    """A string of a pattern."""
    return {"type": "string", "pattern": pattern, **({"description": description} if description else {})}


def integer(description: str = "", least: int = 0, most: int = _INTEGER_MAX) -> Form:
    """An integer within bounds."""
    told = {"description": description} if description else {}
    return {"type": "integer", "minimum": least, "maximum": most, **told}


def record(required: Form, optional: Form | None = None, title: str = "", description: str = "") -> Form:
    """An object of exactly these fields."""
    return {
        **({"title": title} if title else {}),
        **({"description": description} if description else {}),
        "type": "object",
        "additionalProperties": False,
        "required": sorted(required),
        "properties": dict(sorted({**required, **(optional or {})}.items())),
    }


def mapping(names: Form, values: Form) -> Form:
    """An object whose fields are named by what they are about."""
    return {"type": "object", "propertyNames": names, "additionalProperties": values}


def several(items: Form, most: int | None = None, least: int = 0) -> Form:
    """A list of what is told."""
    return {
        "type": "array",
        **({"minItems": least} if least else {}),
        **({} if most is None else {"maxItems": most}),
        "items": items,
    }


def distinct(items: Form, most: int, least: int = 1) -> Form:
    """A list of what is asked for: something, and nothing twice."""
    return {**several(items, most, least), "uniqueItems": True}


def page(items: Form, more: Form | None = None) -> Form:
    """One page of a list (:mod:`api.http.pagination`)."""
    return record({"items": several(items), "next_cursor": nullable(CURSOR), **(more or {})})


def nullable(form: Form) -> Form:
    """The same, or null."""
    return {"anyOf": [form, {"type": "null"}]}


def one_of(*words: str) -> Form:
    """One of these words."""
    return {"type": "string", "enum": [*words]}


def tagged(kind: str, fields: Form, optional: Form | None = None) -> Form:
    """A value that says what it is and in which version."""
    return record({"kind": {"const": kind}, **fields, "v": {"const": 1}}, optional)


NUMBER: Final = text(
    r"^((0|[1-9][0-9]{0,17})(\.[0-9]{0,17}[1-9])?|[1-9][0-9]{0,17}/[1-9][0-9]{0,17})$",
    "a decimal without trailing zeros, or a ratio; never a float",
)
"""As :func:`ledger.wire.exact_numbers.parse_number` reads it."""
TOLD: Final = text(r"^[0-9]+(\.[0-9]+|/[0-9]+)?$", "a decimal or a ratio, worked out exactly")
"""A number that is told and never asked for."""
ROUNDED: Final = text(r"^[0-9]+\.[0-9]{4}$", "four digits after the point, rounded up")
PERCENT: Final = text("^(no room at all|[0-9]+\\.[0-9] %)$", "of capacity, rounded up")
DIGEST: Final = text("^[0-9a-f]{64}$", "SHA-256 in lower-case hexadecimal")
DID: Final = {**text(_DID), "maxLength": 255}
NAME: Final = text(_NAME)
REF: Final = text(f"{_DID[:-1]}/{_NAME[1:-1]}/{_NAME[1:]}", "provider/dataset/partition")
HOLDER: Final = text("^(global|lineage:(0|[1-9][0-9]{0,15}))$", "everyone, or one lineage by its node")
BYTES: Final = text("^[A-Za-z0-9_-]+$", "bytes in base64url")
BYTES_32: Final = text(r"^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$", "32 bytes in base64url")
CURSOR: Final = text("^[A-Za-z0-9_-]+$", "as it is, for the next page")
ETAG: Final = text('^"[A-Za-z0-9_-]{22}"$', "a strong entity tag")
INDEX: Final = integer("an index in the log")
NODE: Final = integer("a node of the lineage, by the index of its entry")
COUNT: Final = integer(least=1)
STEPS: Final = integer("logical steps")
TIME: Final = integer("Unix milliseconds")
STAMP: Final = text(
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{3})?Z$", "a time in UTC, as RFC 3339 has it"
)
WORDS: Final[Form] = {"type": "string", "minLength": 1, "maxLength": 200}
FREE: Final[Form] = {"type": "string"}
FLAG: Final[Form] = {"type": "boolean"}
COMPACT_JWS: Final[Form] = {"type": "string", "minLength": 1, "maxLength": 2048, "description": "a detached JWS"}
