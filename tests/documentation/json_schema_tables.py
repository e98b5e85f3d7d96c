"""JSON Schema (2020-12) as Markdown: one table of an object's fields, those of nested objects by dotted names."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

DEPTH_MAX = 6


def field_table(schema: dict[str, Any], link: Callable[[str], str] | None = None) -> str:
    """A table of the fields of an object.

    Args:
        schema: an object's schema, with its ``$defs``.
        link: how a reference is written, by the name of what it refers to; None to write its fields out.
    """
    lines = ["| field | value | needed | meaning |", "|---|---|---|---|"]
    parts = schema.get("$defs", {})
    # What refers to itself, or has a description of its own, is published as a reference to its definition.
    schema = parts[_name(schema)] if "$ref" in schema else schema
    lines += [
        f"| `{name}` | {_cell(value)} | {'yes' if needed else ''} | {_cell(meaning)} |"
        for name, value, needed, meaning in _fields(schema, parts, link, "", 0)
    ]
    return "\n".join(lines) if len(lines) > 2 else f"{kind_of(schema, parts, link)}."


def _fields(
    schema: dict[str, Any], parts: dict[str, Any], link: Callable[[str], str] | None, before: str, depth: int
) -> Iterator[tuple[str, str, bool, str]]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        path = f"{before}{name}"
        yield path, kind_of(field, parts, link), name in required, field.get("description", "")
        if depth < DEPTH_MAX:
            for inner, mark in _inner(field, parts, link):
                yield from _fields(inner, parts, link, f"{path}{mark}.", depth + 1)


def _inner(
    field: dict[str, Any], parts: dict[str, Any], link: Callable[[str], str] | None
) -> Iterator[tuple[dict[str, Any], str]]:
    """The objects whose fields are listed under a field."""
    if "$ref" in field:
        if link is None:
            yield from _inner(parts[_name(field)], parts, link)
        return
    if "properties" in field:
        yield field, ""
    for alternative in (*field.get("oneOf", ()), *field.get("anyOf", ())):
        yield from _inner(alternative, parts, link)
    if isinstance(field.get("items"), dict):
        yield from ((one, f"[]{mark}") for one, mark in _inner(field["items"], parts, link))
    if isinstance(field.get("additionalProperties"), dict):
        yield from ((one, f".*{mark}") for one, mark in _inner(field["additionalProperties"], parts, link))


def kind_of(schema: dict[str, Any], parts: dict[str, Any], link: Callable[[str], str] | None) -> str:
    """What values a schema takes, in a few words."""
    if "$ref" in schema:
        name = _name(schema)
        return link(name) if link is not None else kind_of(parts.get(name, {}), parts, link)
    if "const" in schema:
        return f"`{json.dumps(schema['const'], ensure_ascii=False)}`"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(one, ensure_ascii=False)}`" for one in schema["enum"])
    alternatives = schema.get("oneOf") or schema.get("anyOf")
    if alternatives and "type" not in schema:
        return " or ".join(dict.fromkeys(kind_of(one, parts, link) for one in alternatives))
    return _typed(schema, parts, link)


def _typed(schema: dict[str, Any], parts: dict[str, Any], link: Callable[[str], str] | None) -> str:
    """Of a schema that names its type."""
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("items")
        inner = kind_of(items, parts, link) if isinstance(items, dict) and items else "anything"
        return f"list of {inner}" + _bounds(schema, "minItems", "maxItems")
    if kind == "object":
        more = schema.get("additionalProperties")
        if isinstance(more, dict) and "properties" not in schema:
            return f"table: name to {kind_of(more, parts, link)}"
        return "table"
    if kind == "string":
        pattern = f", `{schema['pattern']}`" if "pattern" in schema else ""
        return "text" + _bounds(schema, "minLength", "maxLength", " characters") + pattern
    if isinstance(kind, list):
        return " or ".join(kind)
    return str(kind or "anything") + _bounds(schema, "minimum", "maximum")


def _bounds(schema: dict[str, Any], least: str, most: str, unit: str = "") -> str:
    low, high = schema.get(least), schema.get(most)
    if low is None and high is None:
        return ""
    if low is None:
        return f", at most {high}{unit}"
    return f", at least {low}{unit}" if high is None else f", {low} to {high}{unit}"


def _name(schema: dict[str, Any]) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _cell(text: str) -> str:
    """As a cell of a table may hold it."""
    return " ".join(text.split()).replace("|", "\\|")
