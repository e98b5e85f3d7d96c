"""HEAD wherever GET is served: the same routes and the same answer, without its body.

RFC 9110, 9.3.2. The framework would make HEAD an operation of its own in the OpenAPI document.
"""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

_HEAD: Final = "epsilon.head"


class HeadAsGet:
    """ASGI middleware, outermost: the application sees a GET; the server still sees a HEAD, and sends no body."""

    def __init__(self, app: ASGIApp) -> None:
        """Wrap ``app``."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET", _HEAD: True}
        await self._app(scope, receive, send)


def is_head(scope: Scope) -> bool:
    """Whether the request was a HEAD."""
    return _HEAD in scope
