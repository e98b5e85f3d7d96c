"""The OpenAPI document: what FastAPI makes of the routes, with descriptions, shared components and examples.

A schema that has a title is listed under ``components`` and is referred to from everywhere else, and so does each
status that is a problem. ``operation_texts.json`` describes every operation; :mod:`api.wire.openapi_examples` shows it.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api.auth.authorisation import PUBLIC
from api.http.problems import example
from api.wire.openapi_examples import add_examples, packaged_json, problem_example
from client.http.endpoints import PROBLEM_TYPE

_BEARER: Final = "token"
_SCHEME: Final = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "at+jwt (RFC 9068)",
    "description": "from an issuer that the service trusts; a clean room signs its own with the key of its charge",
}
_HOW_TO_SIGN: Final = (files("api.wire") / "how_to_sign.md").read_text("utf-8")
"""What a viewer shows first: of ``docs/signing.md`` what fits there."""
_IF_NONE_MATCH: Final = {
    "name": "if-none-match",
    "in": "header",
    "required": False,
    "description": "entity tags of cached versions: 304 if the current version has one of them",
    "schema": {"type": "string"},
}


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """The document of ``app``: every operation but the public ones requires an access token."""
    document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
    document["info"]["description"] = _HOW_TO_SIGN
    texts = packaged_json("operation_texts.json")
    document["servers"] = [{"url": "/", "description": "the service that serves this document"}]
    document["tags"] = [{"name": name, "description": text} for name, text in texts["tags"].items()]
    components: dict[str, Any] = {"responses": {}, "schemas": {}, "securitySchemes": {_BEARER: _SCHEME}}
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    for operation in operations:
        name = operation["operationId"]
        operation["security"] = [] if name in PUBLIC else [{_BEARER: []}]
        operation.update(texts["operations"].get(name, {}))
        _describe_parameters(operation)
        for part in (operation.get("requestBody", {}), *operation["responses"].values()):
            for content in part.get("content", {}).values():
                content["schema"] = _hoist(content["schema"], components["schemas"])
        _share_problems(operation, components)
    for operation in operations:
        add_examples(operation, components["schemas"])
    document["components"] = components
    return document


def _describe_parameters(operation: dict[str, Any]) -> None:
    if "304" in operation["responses"]:
        operation.setdefault("parameters", []).append(dict(_IF_NONE_MATCH))
    for parameter in operation.get("parameters", []):
        _drop_null(parameter)
        parameter.setdefault("description", parameter["schema"].get("description", ""))
        # The title that the framework derives from a parameter's name says nothing more.
        parameter["schema"] = {
            name: value for name, value in parameter["schema"].items() if name not in {"title", "description"}
        }


def _drop_null(parameter: dict[str, Any]) -> None:
    """A parameter that may be left out is of one type: no text of an address means null."""
    schema = parameter["schema"]
    kinds = [kind for kind in schema.get("anyOf", []) if kind != {"type": "null"}]
    if len(kinds) == 1:
        rest = {name: value for name, value in schema.items() if name != "anyOf"}
        parameter["schema"] = {**kinds[0], **rest}


def _share_problems(operation: dict[str, Any], components: dict[str, Any]) -> None:
    """Let an operation refer to the problems of each status, which are the same everywhere."""
    for status, response in operation["responses"].items():
        if PROBLEM_TYPE in response.get("content", {}):
            response["content"][PROBLEM_TYPE]["example"] = example(int(status), **problem_example(status))
            operation["responses"][status] = _component(components, "responses", f"Problem{status}", response)


def _hoist(schema: Any, schemas: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
    """The schema, with itself and each inside it that has a title moved to ``schemas`` and referred to."""
    if isinstance(schema, list):
        return [_hoist(item, schemas) for item in schema]
    if not isinstance(schema, dict):
        return schema
    title = schema.get("title")
    if not isinstance(title, str):
        # A field may itself be called "title".
        return {name: _hoist(value, schemas) for name, value in schema.items()}
    inner = {name: _hoist(value, schemas) for name, value in schema.items() if name != "title"}
    return _component({"schemas": schemas}, "schemas", title, inner)


def _component(components: dict[str, Any], kind: str, name: str, content: dict[str, Any]) -> dict[str, Any]:
    if components[kind].setdefault(name, content) != content:
        raise AssertionError(f"two {kind} are called {name}")
    return {"$ref": f"#/components/{kind}/{name}"}
