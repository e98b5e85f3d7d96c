"""Commands that are read and answered without the framework, as every run sends them.

The framework compares a path with those of its routes one after the other, reads a request by a plan that it makes anew
each time, and opens what a dependency might have to close after the answer. That takes longer than all else that the
event loop does for a command. What is read, in which order, and every answer is the same.
"""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from api.auth.authentication import Authenticator, unauthenticated_request
from api.http.body import command_body, signature
from api.http.problems import problem_of
from api.routes.submissions.if_match import VERSIONED
from ledger.commands.registry import PATHS


class DirectCommands:
    """ASGI middleware: a POST at the path of a command, where there is no query, is answered by the route's endpoint.

    A command that replaces a version names it in a header of its own: the framework reads that.
    """

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute], authenticator: Authenticator) -> None:
        """Wrap ``app``; ``routes`` are those of :func:`api.routes.submissions.commands.command_router`."""
        direct = {path for kind, path in PATHS.items() if kind not in VERSIONED}
        self._routes = {route.path: route for route in routes if isinstance(route, APIRoute) and route.path in direct}
        self._app = app
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        is_direct = scope["type"] == "http" and scope["method"] == "POST" and not scope["query_string"]
        route = self._routes.get(scope["path"]) if is_direct else None
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        request = Request(scope, receive)
        try:
            answered = await self._answer(route, request)
        except Exception as error:
            problem = problem_of(request, error)
            if problem is None:
                raise
            answered = problem.response()
        await answered(scope, receive, send)

    async def _answer(self, route: APIRoute, request: Request) -> Response:
        await self._authenticator(request)
        raw, jws = await command_body(request), await signature(request)
        answered: Response = await route.endpoint(raw, jws, await unauthenticated_request(request))
        return answered
