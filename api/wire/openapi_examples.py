"""Examples of the OpenAPI document, composed from its schemas: a request or an answer shows one value for each field.

``example_values.json`` holds plausible values by the name of the field or the parameter that shows them, each taken
from a real run. So an example follows its schema, is the same in every build, and needs no recording of a service.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

_HIDDEN: Final = frozenset({"read_docs", "read_docs_file", "read_entry_bundle", "read_tile"})
"""Operations whose answer has no example: binary tiles, and the page that shows the other examples."""

_SHOWN: Final = frozenset({"alerts", "envelope", "outcome", "request"})
"""Optional fields that an example shows all the same."""


@lru_cache(maxsize=4)
def packaged_json(name: str) -> dict[str, Any]:
    """A JSON object that is packaged beside this module."""
    known: dict[str, Any] = json.loads(files("api.wire").joinpath(name).read_bytes())
    return known


def add_examples(operation: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Put an example on each parameter, on the body and on each answer of one operation; ``schemas``: by component."""
    name, values = operation["operationId"], packaged_json("example_values.json")
    for parameter in operation.get("parameters", []):
        schema = parameter["schema"]
        parameter["example"] = schema.get("default") or example_of(schema, schemas, parameter["name"])
    for part, described in {"body": operation.get("requestBody", {}), **operation["responses"]}.items():
        for content in described.get("content", {}).values():
            if name not in _HIDDEN or part == "body":
                text = values["operations"].get(name, {}).get(part)
                content["example"] = example_of(content["schema"], schemas) if text is None else text


def problem_example(status: str) -> dict[str, Any]:
    """What one problem of a status says, beside the members that every problem of its code has."""
    known: dict[str, Any] = packaged_json("example_values.json")["problems"].get(status, {})
    return known


def example_of(schema: dict[str, Any], schemas: dict[str, Any], name: str = "") -> Any:  # noqa: ANN401 - JSON
    """A value that ``schema`` allows, with every field that it requires; ``name`` is of the field that has it."""
    if "$ref" in schema:
        return example_of(schemas[schema["$ref"].rpartition("/")[2]], schemas, name)
    if alternatives := schema.get("oneOf", schema.get("anyOf")):
        return example_of(alternatives[0], schemas, name)
    if "properties" in schema:
        shown = {*schema.get("required", []), *(_SHOWN & {*schema["properties"]})}
        return {field: example_of(schema["properties"][field], schemas, field) for field in sorted(shown)}
    if isinstance(schema.get("additionalProperties"), dict):
        key = example_of(schema.get("propertyNames", {"type": "string"}), schemas, "partition")
        return {key: example_of(schema["additionalProperties"], schemas, name)}
    values = packaged_json("example_values.json")["fields"].get(name, [])
    if schema.get("type") == "array":
        several = schema.get("minItems", 0) > 1
        return values[: schema["minItems"]] if several else [example_of(schema["items"], schemas, name)]
    return next((value for value in values if _allows(schema, value)), _fallback(schema))


def _fallback(schema: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
    words = [schema["const"]] if "const" in schema else schema.get("enum", [])
    return (
        words[0] if words else {"boolean": False, "integer": int(schema.get("minimum", 0))}.get(str(schema.get("type")))
    )


def _allows(schema: dict[str, Any], value: object) -> bool:
    """Whether a scalar is of a schema's type, pattern and bounds."""
    if "const" in schema or "enum" in schema:
        return value in schema.get("enum", [])
    types = schema.get("type", "string")
    if isinstance(value, bool):
        return "boolean" in types
    if isinstance(value, int):
        return "integer" in types and bool(schema.get("minimum", 0) <= value)
    if isinstance(value, dict):
        return "object" in types
    return "string" in types and re.search(schema.get("pattern", ""), str(value)) is not None
