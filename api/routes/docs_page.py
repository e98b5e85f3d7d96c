"""GET /v1/openapi.json, and GET /docs: the same in a viewer, Swagger UI, which this service brings itself.

The viewer's files lie in ``viewer/`` as their makers publish them (``vendored.json`` has version, licence and digests).
The page has no script and no style of its own in it, and nothing of it comes from or goes to another address. The
document begins with how to sign a call, so that is what the viewer shows first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path
from fastapi.responses import HTMLResponse, Response

from api.auth.visibility import not_found
from api.http.problems import declared
from api.wire.responses import shows_text
from client.http.endpoints import JSON_TYPE
from ledger.wire import canonical_json as c

DOCUMENT: Final = "/v1/openapi.json"
ASSETS: Final = {"start.js": "text/javascript", "swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}
"""Files of the viewer that the page names, with their types."""
_FILES: Final = files("api.routes") / "viewer"
_PAGE: Final = shows_text(description="A page", media_type="text/html")
_TEXT: Final = {"schema": {"type": "string"}}
_ASSET: Final = {
    **declared(404, 422),
    200: {"description": "A file of the page", "content": dict.fromkeys(ASSETS.values(), _TEXT)},
}
_POLICY: Final = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
)
HEADERS: Final = {
    "cache-control": "no-cache",
    "content-security-policy": "; ".join(_POLICY),
    "referrer-policy": "no-referrer",
}


def docs_router(document: Callable[[], dict[str, Any]]) -> APIRouter:
    """The routes; ``document`` gives the OpenAPI document."""
    router = APIRouter(tags=["operation"])
    dumped = cache(lambda: c.dump(document()))

    @router.get(DOCUMENT, operation_id="read_openapi", include_in_schema=False)
    def read_openapi() -> Response:
        return Response(dumped(), headers={"cache-control": "no-cache"}, media_type=JSON_TYPE)

    @router.get("/docs", operation_id="read_docs", responses=_PAGE, response_class=HTMLResponse)
    def read_docs() -> Response:
        return HTMLResponse(_read("page.html"), headers=HEADERS)

    @router.get("/docs/{name}", operation_id="read_docs_file", responses=_ASSET)
    def read_docs_file(name: Annotated[str, Path(max_length=40, description="a file that the page names")]) -> Response:
        if name not in ASSETS:
            raise not_found(f"file {name} of the page")
        return Response(_read(name), headers=HEADERS, media_type=ASSETS[name])

    return router


@cache
def _read(name: str) -> bytes:
    return (_FILES / name).read_bytes()
