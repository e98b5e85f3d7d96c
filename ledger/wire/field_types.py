"""Types of record fields: annotated scalars whose bounds, pattern and rule for people are declared once.

``Annotated[str, text(200)]`` and ``Annotated[tuple[Did, ...], distinct(16)]`` declare a field's bounds beside its
type. Types that msgspec does not know are read and written by functions of their own (:func:`register_type`); an exact
number (``Fraction``) is one.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from ledger.wire.exact_numbers import format_number, parse_number

T = TypeVar("T")
TIME_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""
_DID: Final = r"did:[a-z0-9]{1,32}:[A-Za-z0-9._%-]{1,200}(:[A-Za-z0-9._%-]{1,200}){0,8}"
_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._~-]{0,127}"
_NUMBER: Final = r"^((0|[1-9][0-9]{0,17})(\.[0-9]{0,17}[1-9])?|[1-9][0-9]{0,17}/[1-9][0-9]{0,17})$"


def constant(value: T) -> T:
    """The default of a field that is always written: its one value, given by a ``Literal`` of it."""
    # msgspec may omit a plain default when writing, but never the value of a factory.
    return msgspec.field(default_factory=lambda: value)


def text(longest: int, **schema: Any) -> Meta:  # noqa: ANN401 - JSON Schema
    """A string of 1 to ``longest`` characters."""
    return Meta(min_length=1, max_length=longest, extra_json_schema=schema or None)


def pattern(form: str, sentence: str, longest: int | None = None) -> Meta:
    """A string that matches a regular expression as a whole; the sentence explains it to people."""
    return Meta(pattern=rf"^(?:{form})\Z", max_length=longest, extra={"rule": sentence})


def rule(sentence: str) -> Meta:
    """The message for a word outside a closed list, an unknown tag, or differing constants of a record."""
    return Meta(extra={"rule": sentence})


def words(*choices: str) -> Meta:
    """A word of a closed list."""
    schema = {"enum": [*choices]}
    return Meta(
        pattern=rf"^(?:{'|'.join(choices)})\Z",
        extra_json_schema=schema,
        extra={"rule": f"must be one of {', '.join(choices)}"},
    )


def between(least: int, most: int) -> Meta:
    """An integer within bounds."""
    return Meta(ge=least, le=most)


def distinct(most: int, least: int = 1) -> Meta:
    """A list of ``least`` to ``most`` different items."""
    return Meta(min_length=least, max_length=most, extra_json_schema={"uniqueItems": True}, extra={"distinct": True})


def exact(
    least: Fraction | None = None,
    most: Fraction | None = None,
    *,
    below: Fraction | None = None,
    positive: bool = False,
) -> Meta:
    """An exact number within bounds, as a string; ``positive`` excludes zero, and ``below`` itself is excluded."""
    return Meta(extra={"least": least, "most": most, "below": below, "positive": positive})


Name = Annotated[str, pattern(_NAME, "must be 1 to 128 letters, digits, '.', '_', '~' or '-', a letter or digit first")]
"""An id that a client makes: 1 to 128 characters."""
Did = Annotated[str, pattern(_DID, "must be a DID of at most 255 characters, as 'did:web:bank-a.example'", longest=255)]
"""A decentralised identifier (W3C DID Core, 3.1)."""
Ref = Annotated[
    str, pattern(rf"(?=[^/]{{1,255}}/){_DID}/{_NAME}/{_NAME}", "must be 'provider/dataset/partition'", longest=513)
]
"""A partition reference, ``provider/dataset/partition``."""
DatasetRef = Annotated[str, pattern(rf"(?=[^/]{{1,255}}/){_DID}/{_NAME}", "must be 'provider/dataset'", longest=384)]
"""A reference to a dataset, ``provider/dataset``."""
Sha256 = Annotated[str, pattern("[0-9a-f]{64}", "must be a SHA-256 digest, 64 lower-case hexadecimal digits")]
"""A digest in lower-case hexadecimal."""
KeyBytes = Annotated[str, pattern("[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]", "must hold 32 bytes in base64url")]
"""Thirty-two bytes in base64url without padding, in their one spelling; a key id (RFC 7638 thumbprint) is one too."""
Time = Annotated[int, between(0, TIME_MAX)]
"""Unix milliseconds."""
Positive = Annotated[Fraction, exact(positive=True)]
"""An exact number greater than zero; a plain ``Fraction`` may be zero too."""


READERS: Final[dict[type, Callable[[Any], Any]]] = {Fraction: lambda value: parse_number(value, "")}
WRITERS: Final[dict[type, Callable[[Any], Any]]] = {Fraction: format_number}
SCHEMAS: Final[dict[type, dict[str, Any]]] = {Fraction: {"type": "string", "pattern": _NUMBER}}


def register_type(
    kind: type[T], reader: Callable[[Any], T], writer: Callable[[Any], Any] | None, schema: dict[str, Any] | None = None
) -> None:
    """Register a type of fields with its reader and writer. The reader raises Malformed."""
    READERS[kind] = reader
    if writer is not None:
        WRITERS[kind] = writer
    SCHEMAS[kind] = {"type": "object"} if schema is None else schema


def read_custom(kind: type, value: object) -> object:
    """Read a value of a registered type: the hook of msgspec's decoders. Raises: Malformed."""
    return READERS[kind](value)


def write_custom(value: object) -> object:
    """Write a value of a registered type: the hook of msgspec's encoders. Raises: NotImplementedError."""
    writer = WRITERS.get(type(value))
    if writer is None:
        raise NotImplementedError(type(value).__name__)
    return writer(value)
