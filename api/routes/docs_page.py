"""GET /v1/openapi.json, and GET /docs: the same as one page that needs nothing but itself: no script, no other address.

Operations and schemas are folded (``<details>``); a schema that is referred to is a link to it. The page
is rendered by ``docs_page.html.j2`` (Jinja2, which escapes every value).
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any, Final

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, select_autoescape

from api.wire.responses import shows_text
from client.http.endpoints import JSON_TYPE
from ledger.wire import canonical_json as c

DOCUMENT: Final = "/v1/openapi.json"
_FILES: Final = files("api.routes")
_STYLE: Final = _FILES.joinpath("docs_page.css").read_text("utf-8")
_PAGE: Final = shows_text(description="A page", media_type="text/html")
_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS: Final = {
    "cache-control": "no-cache",
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}
_BOUNDS: Final = ("pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "default")


def docs_router(document: Callable[[], dict[str, Any]]) -> APIRouter:
    """Both routes; ``document`` gives the OpenAPI document."""
    router = APIRouter(tags=["operation"])
    written, dumped = cache(lambda: page(document())), cache(lambda: c.dump(document()))

    @router.get(DOCUMENT, operation_id="read_openapi", include_in_schema=False)
    def read_openapi() -> Response:
        return Response(dumped(), headers={"cache-control": "no-cache"}, media_type=JSON_TYPE)

    @router.get("/docs", operation_id="read_docs", responses=_PAGE, response_class=HTMLResponse)
    def read_docs() -> Response:
        return HTMLResponse(written(), headers=HEADERS)

    return router


def page(document: dict[str, Any]) -> str:
    """The page of an OpenAPI document."""

    def resolved(part: dict[str, Any]) -> dict[str, Any]:
        kind, name = part["$ref"].split("/")[2:] if "$ref" in part else ("", "")
        return document["components"][kind][name] if kind else part

    environment = Environment(autoescape=select_autoescape(default=True, default_for_string=True))
    environment.filters |= {
        "bounds": lambda schema: ", ".join(f"{name} {schema[name]}" for name in _BOUNDS if name in schema),
        "example": lambda shown: shown if isinstance(shown, str) else json.dumps(shown, indent=1, ensure_ascii=False),
        "json": json.dumps,
        "resolved": resolved,
    }
    template = environment.from_string(_FILES.joinpath("docs_page.html.j2").read_text("utf-8"))
    return template.render(**document, style=_STYLE, address=DOCUMENT)
