"""The OpenAPI document: what FastAPI makes of the routes, in words, with forms told once and examples of a real run.

A form that has a title stands under ``components`` and is referred to from everywhere else, and so does each status
that is a problem. ``words.json`` says what every operation is for. ``examples.json`` is what a service was asked and
answered: ``python -m tests.http.write_openapi`` takes it from a book that it fills over HTTP.
"""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from fastapi.openapi.utils import get_openapi

from api.auth.authorisation import PUBLIC
from api.http.problems import bare
from client.http.endpoints import PROBLEM_TYPE

if TYPE_CHECKING:
    from fastapi import FastAPI

_BEARER: Final = "token"
_SCHEME: Final = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "at+jwt (RFC 9068)",
    "description": "from an issuer that the service believes; a clean room signs its own with its charge's key",
}
_IF_NONE_MATCH: Final = {
    "name": "if-none-match",
    "in": "header",
    "required": False,
    "description": "tags that the caller has: 304 if the answer would have one of them",
    "schema": {"type": "string"},
}


def described(app: FastAPI) -> dict[str, Any]:
    """The document: an access token on every operation but the public ones."""
    document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
    words = _kept("words.json")
    document["servers"] = [{"url": "/", "description": "whatever serves this document"}]
    document["tags"] = [{"name": name, "description": told} for name, told in words["tags"].items()]
    components: dict[str, Any] = {"responses": {}, "schemas": {}, "securitySchemes": {_BEARER: _SCHEME}}
    for methods in document["paths"].values():
        for operation in methods.values():
            name = operation["operationId"]
            operation["security"] = [] if name in PUBLIC else [{_BEARER: []}]
            operation.update(words["operations"].get(name, {}))
            _show(operation, _kept("examples.json").get(name, {}))
            _tell_once(operation, components)
    document["components"] = components
    return document


@lru_cache(maxsize=2)
def _kept(name: str) -> dict[str, Any]:
    known: dict[str, Any] = json.loads(files("api").joinpath(name).read_bytes())
    return known


def _show(operation: dict[str, Any], shown: dict[str, Any]) -> None:
    """Put the examples of one operation where they belong."""
    if "304" in operation["responses"]:
        operation.setdefault("parameters", []).append(dict(_IF_NONE_MATCH))
    for one in operation.get("parameters", []):
        one.setdefault("description", one["schema"].get("description", ""))
        # The name that the library makes of a parameter's own says nothing more.
        one["schema"] = {name: value for name, value in one["schema"].items() if name not in {"title", "description"}}
        known = {one["name"]: one["schema"].get("default"), **shown.get("parameters", {})}
        if known[one["name"]] is not None:
            one["example"] = known[one["name"]]
    told = {"body": operation.get("requestBody", {}), **operation["responses"]}
    for which, one in told.items():
        for content in one.get("content", {}).values():
            if which in shown:
                content["example"] = shown[which]


def _tell_once(operation: dict[str, Any], components: dict[str, Any]) -> None:
    """Let an operation refer to its forms and its problems."""
    for told in (operation.get("requestBody", {}), *operation["responses"].values()):
        for content in told.get("content", {}).values():
            content["schema"] = _referring(content["schema"], components["schemas"])
    problems = _kept("examples.json")["problems"]
    for status, told in operation["responses"].items():
        if PROBLEM_TYPE in told.get("content", {}):
            told["content"][PROBLEM_TYPE] |= {"example": bare(int(status)), **problems.get(status, {})}
            operation["responses"][status] = _component(components, "responses", f"Problem{status}", told)


def _referring(form: Any, forms: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
    """The form, with itself and each inside it that has a title told among ``forms``."""
    if isinstance(form, list):
        return [_referring(one, forms) for one in form]
    if not isinstance(form, dict):
        return form
    title = form.get("title")
    if not isinstance(title, str):
        # A field may itself be called so.
        return {name: _referring(one, forms) for name, one in form.items()}
    inner = {name: _referring(one, forms) for name, one in form.items() if name != "title"}
    return _component({"schemas": forms}, "schemas", title, inner)


def _component(components: dict[str, Any], kind: str, name: str, told: dict[str, Any]) -> dict[str, Any]:
    if components[kind].setdefault(name, told) != told:
        message = f"two {kind} are called {name}"
        raise AssertionError(message)
    return {"$ref": f"#/components/{kind}/{name}"}
