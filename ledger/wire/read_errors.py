"""Explains why a value does not fit a record, by field path and rule, for the caller whose input is refused.

msgspec decides whether a value is valid; this walk over the declared types finds the first invalid field and the
rule that it breaks: first names that are unknown or missing, in alphabetical order, then constants, then the other
fields as they are declared.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import ValidationError, inspect

from ledger.wire import canonical_json as c
from ledger.wire.field_types import read_custom
from ledger.wire.malformed import Malformed


def explain(node: inspect.Type, value: Any, where: str, rule: str = "") -> None:  # noqa: ANN401 - JSON
    """Explain by field and rule why msgspec refuses a value. Raises: Malformed, unless it finds no reason."""
    match node:
        case inspect.Metadata():
            explain(node.type, value, where, (node.extra or {}).get("rule", rule))
            if (node.extra or {}).get("distinct") and len({*map(c.spelled, value)}) != len(value):
                raise Malformed(where, "names an item twice")
        case inspect.StructType():
            _explain_object(node, value, where, rule)
        case inspect.UnionType():
            _explain_choice(node, value, where, rule)
        case inspect.VarTupleType() | inspect.ListType():
            _explain_list(node, value, where)
        case inspect.DictType():
            for name, inner in c.members(value, where).items():
                explain(node.key_type, name, f"{where}.{name[:80]}" if where else name[:80])
                explain(node.value_type, inner, f"{where}.{name}" if where else name)
        case inspect.CustomType():
            _with_path(lambda: read_custom(node.cls, value), where)
        case _:
            _explain_scalar(node, value, where, rule)


def _explain_object(node: inspect.StructType, value: Any, where: str, rule: str = "") -> None:  # noqa: ANN401 - JSON
    tag = () if node.tag_field is None else (node.tag_field,)
    needed = tuple(field.encode_name for field in node.fields if field.required or _is_constant(field.type))
    optional = tuple(field.encode_name for field in node.fields)
    c.fields(value, where, tuple(sorted((*tag, *needed))), optional)
    if rule and any(not _is_word_of(field.type, value.get(field.encode_name, field.default)) for field in node.fields):
        raise Malformed(where, rule)
    if tag and value[node.tag_field] != node.tag:
        raise Malformed(
            *((where, rule) if rule else (f"{where}.{tag[0]}" if where else tag[0], f"must be '{node.tag}'"))
        )
    # A constant determines what the other fields mean, so it is reported first.
    for field in sorted(node.fields, key=lambda member: not _is_constant(member.type)):
        if (name := field.encode_name) in value:
            kind = field.type if field.default is not None else _present(field.type)
            explain(kind, value[name], f"{where}.{name}" if where else name)
    _with_path(lambda: msgspec.convert(value, node.cls, dec_hook=read_custom), where)


def _is_word_of(node: inspect.Type, value: object) -> bool:
    """Whether a value is a word of a closed list of strings; always true for other types."""
    return not isinstance(node, inspect.LiteralType) or value in node.values


def _is_constant(node: inspect.Type) -> bool:
    inner = node.type if isinstance(node, inspect.Metadata) else node
    return isinstance(inner, inspect.LiteralType) and len(inner.values) == 1


def _present(node: inspect.Type) -> inspect.Type:
    """The type of an optional field that is present."""
    if not isinstance(node, inspect.UnionType):
        return node
    present = tuple(step_type for step_type in node.types if not isinstance(step_type, inspect.NoneType))
    return present[0] if len(present) == 1 else inspect.UnionType(present)


def _explain_choice(node: inspect.UnionType, value: Any, where: str, rule: str) -> None:  # noqa: ANN401 - JSON
    if value is None and any(isinstance(step_type, inspect.NoneType) for step_type in node.types):
        return
    choices = [step_type for step_type in node.types if not isinstance(step_type, inspect.NoneType)]
    tagged = [choice for choice in choices if isinstance(choice, inspect.StructType) and choice.tag_field]
    if not tagged:
        words = [choice for choice in choices if isinstance(choice, inspect.LiteralType)]
        explain(words[0] if words and isinstance(value, str) else choices[0], value, where, rule)
        return
    tag = str(tagged[0].tag_field)
    word = c.members(value, where).get(tag)
    chosen = next((kind for kind in tagged if kind.tag == word), None)
    if chosen is None:
        why = "is missing" if word is None else f"{str(word)[:40]!r} {rule or 'is not known here'}"
        raise Malformed(f"{where}.{tag}" if where else tag, why)
    _explain_object(chosen, value, where)


def _explain_list(node: Any, value: Any, where: str) -> None:  # noqa: ANN401 - a list's type, JSON
    if not isinstance(value, list):
        raise Malformed(where, "must be a list")
    least, most = node.min_length or 0, node.max_length
    if len(value) < least or (most is not None and len(value) > most):
        raise Malformed(where, f"must have {least} to {most} items")
    for place, inner in enumerate(value):
        explain(node.item_type, inner, f"{where}[{place}]")


def _explain_scalar(node: inspect.Type, value: object, where: str, rule: str) -> None:
    match node:
        case inspect.IntType():
            least = -c.INTEGER_MAX if node.ge is None else int(node.ge)
            c.integer(value, where, least, c.INTEGER_MAX if node.le is None else int(node.le))
        case inspect.StrType() if node.pattern:
            short = isinstance(value, str) and len(value) <= (node.max_length or len(value))
            if not short or not re.search(node.pattern, str(value)):
                raise Malformed(where, rule)
        case inspect.StrType():
            c.string(value, where, node.max_length or c.INTEGER_MAX)
        case inspect.BoolType():
            c.boolean(value, where)
        case inspect.LiteralType():
            _explain_word(node.values, value, where, rule)
        case inspect.NoneType() if value is not None:
            raise Malformed(where, "must be null")
        case _:
            pass


def _explain_word(words: tuple[Any, ...], value: object, where: str, rule: str) -> None:
    if isinstance(words[0], int):
        c.integer(value, where, min(words), max(words))
    elif value not in words or not isinstance(value, str):
        raise Malformed(where, rule or (f"must be one of {', '.join(words)}" if words[1:] else f"must be '{words[0]}'"))


def _with_path(read_value: Callable[[], object], where: str) -> None:
    """Raises: Malformed, as a reader or a record's own check does, under the path."""
    try:
        read_value()
    except Malformed as error:
        raise error.under(where) if where else error from None
    except ValidationError as refused:
        if isinstance(refused.__cause__, Malformed):
            raise refused.__cause__.under(where) if where else refused.__cause__ from None
