"""The OpenAPI document: what FastAPI makes of the routes, and who has to show a token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastapi.openapi.utils import get_openapi

from api.access import PUBLIC
from api.problems import SCHEMA

if TYPE_CHECKING:
    from fastapi import FastAPI

_NAME: Final = "token"
_SCHEME: Final = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "at+jwt (RFC 9068)",
    "description": "from an issuer that the service believes; a clean room signs its own with its charge's key",
}


def described(app: FastAPI) -> dict[str, Any]:
    """The document: an access token on every operation but the public ones."""
    document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
    components = document.setdefault("components", {})
    components["securitySchemes"] = {_NAME: _SCHEME}
    components["schemas"] = {"Problem": SCHEMA}
    for methods in document["paths"].values():
        for operation in methods.values():
            operation["security"] = [] if operation["operationId"] in PUBLIC else [{_NAME: []}]
    return document
