"""JSON Schema (2020-12) of declared records, as OpenAPI and the published schemas of documents hold it."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ledger.wire.field_types import SCHEMAS

Schema = dict[str, Any]


def json_schema(kind: Any) -> Schema:  # noqa: ANN401 - any type that msgspec reads
    """The JSON Schema (2020-12) of a record, self-contained: referenced schemas are under ``$defs``."""
    (schema,), parts = json_schemas(kind, ref_template="#/$defs/{name}")
    return {**schema, "$defs": parts} if parts else schema


def json_schemas(
    *kinds: Any,  # noqa: ANN401 - any types that msgspec reads
    ref_template: str = "#/components/schemas/{name}",
) -> tuple[list[Schema], Schema]:
    """The schemas of several types, and the named schemas that they refer to, as in OpenAPI."""
    schemas, parts = msgspec.json.schema_components(kinds, schema_hook=_schema, ref_template=ref_template)
    return [_publish(schema) for schema in schemas], {name: _record(part) for name, part in parts.items()}


def _schema(kind: type) -> Schema:
    return SCHEMAS[kind]


def _record(schema: Schema) -> Schema:
    """The schema of a record. A field with a default factory has no default here: it is always written."""
    record: Schema = _publish(schema)
    fields = schema.get("properties", {})
    always = [name for name, field in fields.items() if "default" not in field]
    return {**record, "required": sorted({*record.get("required", []), *always})} if fields else record


def _publish(schema: Any) -> Any:  # noqa: ANN401 - JSON Schema
    """JSON Schema in its published form: ECMA patterns, constants required, absent fields not declared null."""
    if isinstance(schema, list):
        return [_publish(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    published = {name: _publish(value) for name, value in schema.items() if name != "default"}
    if "enum" in published:
        published.pop("pattern", None)
    if isinstance(form := published.get("pattern"), str):
        # Without a leading lookahead too, which generators of examples cannot follow; maxLength bounds it as well.
        inner = re.sub(r"^\^\(\?:(?:\(\?=[^)]*\))?(.*)\)\\Z$", r"\1", form)
        if inner != form:
            published["pattern"] = f"^({inner})$" if "|" in inner else f"^{inner}$"
    if isinstance(words := published.get("enum"), list) and len(words) == 1:
        published = {"const": words[0], **{name: value for name, value in published.items() if name != "enum"}}
    fields = schema.get("properties")
    if isinstance(fields, dict):
        for name, field in fields.items():
            if "default" in field and field["default"] is None and "anyOf" in field:
                published["properties"][name] = _without_null(published["properties"][name])
    return published


def _without_null(schema: Schema) -> Schema:
    options = [_flag(option) for option in schema["anyOf"] if option != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    return {**options[0], **rest} if len(options) == 1 else {**rest, "anyOf": options}


def _flag(schema: Schema) -> Schema:
    """A field that is true or absent: a generated Python client cannot be parsed with the constant ``true``."""
    return {"type": "boolean", "not": {"const": False}} if schema.get("const") is True else schema
