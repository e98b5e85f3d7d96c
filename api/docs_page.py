"""GET /docs: the OpenAPI document as one page that needs nothing but itself: no script, no font, no other address."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from api.problems import declared

if TYPE_CHECKING:
    from collections.abc import Callable

_STYLE: Final = (
    "body{font-family:sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;line-height:1.4}"
    "code{font-family:monospace}h2{font-size:1rem;margin:1.5rem 0 .2rem}dt{font-weight:bold}dd{margin:0 0 .3rem 1rem}"
)
_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS: Final = {
    "cache-control": "no-cache",
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def docs_router(document: Callable[[], dict[str, Any]]) -> APIRouter:
    """The one route; ``document`` gives the OpenAPI document."""
    router = APIRouter(tags=["operation"])

    @router.get("/docs", operation_id="read_docs", responses=declared(), response_class=HTMLResponse)
    def read_docs() -> Response:
        return HTMLResponse(page(document()), headers=HEADERS)

    return router


def page(document: dict[str, Any]) -> str:
    """The page."""
    info = document["info"]
    operations = "".join(
        _operation(method, path, what)
        for path, methods in sorted(document["paths"].items())
        for method, what in methods.items()
    )
    head = f'<meta charset="utf-8"><title>{escape(info["title"])}</title><style>{_STYLE}</style>'
    return (
        f'<!doctype html><html lang="en"><head>{head}</head><body><h1>{escape(info["title"])}</h1>'
        f"<p>{escape(info.get('summary', ''))}. Version {escape(info['version'])}; for programs: "
        f'<a href="/v1/openapi.json">/v1/openapi.json</a>.</p>{operations}</body></html>'
    )


def _operation(method: str, path: str, what: dict[str, Any]) -> str:
    parameters = "".join(
        f"<dt><code>{escape(one['name'])}</code> in {escape(one['in'])}</dt>"
        f"<dd>{escape(one.get('description', ''))}</dd>"
        for one in what.get("parameters", [])
    )
    answers = "".join(
        f"<dt>{escape(status)}</dt><dd>{escape(one['description'])}</dd>" for status, one in what["responses"].items()
    )
    return (
        f'<section id="{escape(what["operationId"])}"><h2><code>{method.upper()} {escape(path)}</code></h2>'
        f"<p>{escape(what.get('description', ''))}</p><dl>{parameters}{answers}</dl></section>"
    )
