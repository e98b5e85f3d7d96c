"""HEAD wherever GET is served: the same routes and the same answer, of which the server sends no body.

RFC 9110, 9.3.2. The framework would take HEAD for an operation of its own, with a place in the OpenAPI document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_ASKED: Final = "epsilon.head"


class Heads:
    """ASGI middleware, outermost: what is below it sees a GET; the server keeps its own scope, and sends no body."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap ``app``."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET", _ASKED: True}
        await self._app(scope, receive, send)


def asks_head(scope: Scope) -> bool:
    """Whether the caller wants no body."""
    return _ASKED in scope
