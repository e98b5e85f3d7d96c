"""Declared records: one typed class a record, from which its strict reader, canonical writer and JSON Schema come.

    class Split(Record, frozen=True):
        organisation: Did
        child: Did

    read(Split, b'{"child":"did:web:a.example","organisation":"did:web:b.example"}', 1_000)

Reading accepts canonical JSON (RFC 8785) of exactly the declared fields and refuses the rest by field and rule. A field
is missing or unknown, or breaks its type's rule; ``__post_init__`` checks what a type cannot express and raises
Malformed. A field with the default None may be absent, and null is refused; a field without a default is nullable if
its type is. A constant (``v: Literal[1] = constant(1)``) must be present. msgspec decodes and validates;
:mod:`ledger.wire.read_errors` only explains what msgspec refuses.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Hashable
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, Self, TypeVar

import msgspec
from msgspec import inspect

from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number
from ledger.wire.field_types import read_custom, write_custom
from ledger.wire.malformed import Malformed
from ledger.wire.read_errors import explain

T = TypeVar("T")


class AbstractRecordType(msgspec.StructMeta, ABCMeta):
    """The metaclass of an abstract record, with subclasses only: ``class Rule(Record, metaclass=...)``."""


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A frozen JSON object of exactly its fields; see the module."""

    def __post_init__(self) -> None:
        """Check that lists have different items, and exact numbers lie within their bounds. Raises: Malformed."""
        distinct, checks = _CHECKS[type(self)]
        for name in distinct:
            value = getattr(self, name)
            if value is not None and len(value) > 1 and isinstance(value, tuple) and len(set(value)) != len(value):
                raise Malformed(name, "names an item twice")
        for name, check in checks:
            check(getattr(self, name), name)

    @classmethod
    def project(cls, source: object, **fields: Any) -> Self:  # noqa: ANN401 - each has the type of its field
        """The record whose fields are attributes of ``source``, but for those that ``fields`` gives."""
        shared = {name: getattr(source, name) for name in cls.__struct_fields__ if name not in fields}
        return cls(**shared, **fields)

    def to_json(self) -> c.Object:
        """The record as a JSON value."""
        tagged: c.Object = to_json(self)
        return tagged


def read(kind: type[T], data: bytes, size_max: int, what: str = "") -> T:
    """Read canonical bytes as a record. Raises: Malformed, if they are not canonical JSON or not this record."""
    record = read_certain(kind, data) if len(data) <= size_max else None
    return convert(kind, c.parse_canonical(data, size_max, what), what) if record is None else record


def read_certain(kind: type[T], data: bytes) -> T | None:
    """Read canonical bytes as a record, fast; None where the strict reader must read them and report the error."""
    key: Any = kind  # a type is hashable, which its annotation lacks
    reader: Callable[[bytes], T | None] = canonical_reader(key)
    return reader(data) if _is_bounded(key) else None


@lru_cache(maxsize=256)
def canonical_reader(kind: type[T]) -> Callable[[bytes], T | None]:
    """A reader of the record from certainly canonical bytes; it returns None where the strict reader must read them.

    The caller checks the values of fields that a type leaves open (``Any``, ``msgspec.Raw``).
    """
    decode = msgspec.json.Decoder(kind, dec_hook=read_custom).decode

    def read_canonical(data: bytes) -> T | None:
        # Searching for a backslash is faster than for an escape, and there is hardly ever one.
        if not data.isascii() or (b"\\" in data and b"\\u0000" in data):
            return None
        try:
            record = decode(data)
            # Other spellings, repeated names and absent constants all give other bytes when encoded again, and of
            # ASCII the encoder's order is the canonical one.
            return record if _ENCODER.encode(record) == data else None
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None

    return read_canonical


def convert(kind: type[T], value: object, where: str = "", rule: str = "") -> T:
    """Read a JSON value as a record.

    Args:
        where: the path of the value.
        rule: the message if a constant or a tag of the record differs.

    Raises:
        Malformed: for the first field that is missing, unknown or breaks its rule.
    """
    anything: Any = value  # values that are not JSON are explained below
    key: Any = kind
    try:
        record = msgspec.convert(value, kind, dec_hook=read_custom)
        if write(record) == c.dump(anything):
            return record
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        pass  # explained below
    explain(type_info(key), value, where, rule)
    raise Malformed(where, f"is not in the form of {getattr(kind, '__name__', 'the record')}")


def write(record: object) -> bytes:
    """The canonical bytes (RFC 8785) of a record."""
    data = _ENCODER.encode(record)
    return data if c.sorts_alike(data) else c.dump(to_json(record))


def to_json(record: object) -> Any:  # noqa: ANN401 - JSON
    """A record as a JSON value."""
    return msgspec.json.decode(_ENCODER.encode(record))


_ENCODER: Final = msgspec.json.Encoder(enc_hook=write_custom, order="sorted")


@lru_cache(maxsize=256)
def type_info(kind: Hashable) -> inspect.Type:
    """The description of a type by msgspec, cached: deriving it takes longer than reading a command."""
    return inspect.type_info(kind)


@lru_cache(maxsize=256)
def _is_bounded(kind: Hashable) -> bool:
    """Whether all values inside are declared: undeclared ones may hold floats, great integers and any depth."""
    return not _is_open(type_info(kind))


def _is_open(node: inspect.Type, above: tuple[int, ...] = ()) -> bool:
    """Whether a type leaves its values unbounded in type, size or depth."""
    if isinstance(node, inspect.AnyType | inspect.RawType) or id(node) in above:
        return True
    if isinstance(node, inspect.IntType):
        return node.ge is None or node.le is None
    return any(_is_open(inner, (*above, id(node))) for inner in _inner(node))


def _inner(node: inspect.Type) -> list[inspect.Type]:
    match node:
        case inspect.Metadata():
            types = [node.type]
        case inspect.StructType():
            types = [field.type for field in node.fields]
        case inspect.UnionType():
            types = [*node.types]
        case inspect.VarTupleType() | inspect.ListType():
            types = [node.item_type]
        case inspect.DictType():
            types = [node.key_type, node.value_type]
        case _:
            types = []
    return types


Check = Callable[[Any, str], None]


class _Checks(dict[type, tuple[tuple[str, ...], tuple[tuple[str, Check], ...]]]):
    """By kind of record, the fields whose items differ, and the checks beyond msgspec's of others; cached."""

    def __missing__(self, kind: type) -> tuple[tuple[str, ...], tuple[tuple[str, Check], ...]]:
        info = type_info(kind)
        assert isinstance(info, inspect.StructType)
        distinct: list[str] = []
        checks: list[tuple[str, Check]] = []
        for field in info.fields:
            extra = _extra(field.type)
            if extra.get("distinct"):
                distinct.append(field.name)
            if "positive" in extra:
                checks.append((field.name, _within(extra)))
            if "positive" in (each := _extra(_item(field.type))):
                checks.append((field.name, _each(_within(each))))
        self[kind] = tuple(distinct), tuple(checks)
        return self[kind]


_CHECKS: Final = _Checks()


def _extra(node: inspect.Type) -> dict[str, Any]:
    if isinstance(node, inspect.Metadata):
        return {**_extra(node.type), **(node.extra or {})}
    if isinstance(node, inspect.UnionType):
        return next((extra for step_type in node.types if (extra := _extra(step_type))), {})
    return {}


def _item(node: inspect.Type) -> inspect.Type:
    """The type of a list's items; any type if it is not a list."""
    inner = node.type if isinstance(node, inspect.Metadata) else node
    return inner.item_type if isinstance(inner, inspect.VarTupleType) else inspect.AnyType()


def _each(check: Callable[[Any, str], None]) -> Callable[[Any, str], None]:
    def check_each(value: tuple[Any, ...], where: str) -> None:
        for place, item in enumerate(value):
            check(item, f"{where}[{place}]")

    return check_each


def _within(extra: dict[str, Any]) -> Callable[[Any, str], None]:
    least, most, below, positive = (extra[name] for name in ("least", "most", "below", "positive"))

    def check(value: Fraction | None, where: str) -> None:
        if value is None:
            return
        if positive and value <= 0:
            raise Malformed(where, "must be greater than 0")
        if below is not None and value >= below:
            raise Malformed(where, f"must be less than {format_number(below)}")
        if least is None and most is not None and value > most:
            raise Malformed(where, f"must be at most {format_number(most)}")
        if (least is not None and value < least) or (most is not None and value > most):
            bounds = (format_number(bound) for bound in (least, most) if bound is not None)
            raise Malformed(where, f"must lie between {' and '.join(bounds)}")

    return check
