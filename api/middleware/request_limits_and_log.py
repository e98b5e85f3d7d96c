"""Around every request: an id, headers of every answer, limits on concurrency and time, a metric and a line of log.

HEAD is served wherever GET is (RFC 9110, 9.3.2): the same answer, of which the server sends no body. The framework
would make HEAD an operation of its own in the OpenAPI document.

A request that takes longer than :data:`ANSWER_S` is answered 503 and continues to its end: its command may still be
recorded, and a retry of the same command finds out.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Callable, Iterator
from itertools import count
from time import perf_counter
from typing import Any, Final, NamedTuple

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.auth.authorisation import PUBLIC, Caller
from api.auth.caller_quotas import CallerQuotas
from api.http.problems import Problem, ServiceCode, failed
from api.http.wanted_answers import OVER
from api.middleware.metrics import Metrics

IN_FLIGHT_MAX: Final = 384
"""Requests at once, event streams included."""
ANSWER_S: Final = 60.0
REQUEST_ID: Final = "x-request-id"
HEAD: Final = "epsilon.head"
"""In the scope of a GET that was a HEAD."""
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_LOG: Final = logging.getLogger("api.requests")


class Answering:
    """The answer to one request: its status, and whether the application may still send any of it.

    Attributes:
        over: what the application sends is dropped.
        late: answers in the application's stead, once that takes too long.
    """

    def __init__(self, send: Send, request_id: str, scope: Scope, quotas: CallerQuotas) -> None:
        """Nothing is sent yet."""
        self._send, self._scope, self._quotas = send, scope, quotas
        self.request_id = request_id
        self.status = 0
        self.over = False
        self.late: asyncio.Task[None] | None = None

    async def send(self, message: Message) -> None:
        """Pass a message of the application on; drop it once the answer is over."""
        if not self.over:
            await self.pass_on(message)

    async def pass_on(self, message: Message) -> None:
        """Pass a message on, with the headers that every answer has."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", []), *self._of_every_answer()]}
        await self._send(message)

    def _of_every_answer(self) -> Iterator[tuple[bytes, bytes]]:
        yield REQUEST_ID.encode(), self.request_id.encode()
        yield b"x-content-type-options", b"nosniff"
        if _operation(self._scope) not in PUBLIC:
            # What one token is shown no cache gives to another (RFC 9111, section 4.1).
            yield b"vary", b"authorization"
        yield from self._quotas.headers(_caller(self._scope), self._scope)


Respond = Callable[[Problem, Scope], ASGIApp]
"""The answer that says a problem to who sent a request: JSON to a program, a page to a person."""


class Requests:
    """ASGI middleware, outermost of the application's own."""

    def __init__(  # noqa: PLR0913 - what a request is held to
        self,
        app: ASGIApp,
        metrics: Metrics,
        quotas: CallerQuotas,
        *,
        in_flight_max: int = IN_FLIGHT_MAX,
        answer_s: float = ANSWER_S,
        respond: Respond = lambda problem, _: problem.response(),
    ) -> None:
        """Wrap ``app``; ``respond`` makes the answer to a request that gets none from it."""
        self._respond = respond
        self._quotas = quotas
        self._in_flight_max, self._answer_s = in_flight_max, answer_s
        self._app = app
        self._metrics = metrics
        self._prefix, self._numbers = secrets.token_hex(8), count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET", HEAD: True}
        given = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = given if _ID.match(given) else f"{self._prefix}-{next(self._numbers)}"
        answering = Answering(send, request_id, scope, self._quotas)
        scope[OVER] = lambda: answering.over
        exchange = _Exchange(scope, receive, answering, perf_counter())
        if self._metrics.in_flight >= self._in_flight_max:
            busy = Problem(ServiceCode.BUSY, "too many requests are being answered")
            await self._respond(busy, scope)(scope, receive, exchange.answering.send)
        else:
            await self._within_time(exchange)
        if exchange.answering.over and exchange.answering.late is not None:
            # The server ends an exchange whose application has returned.
            await exchange.answering.late
        else:
            self._record(exchange)

    async def _within_time(self, exchange: _Exchange) -> None:
        deadline = asyncio.get_running_loop().call_later(self._answer_s, self._give_up, exchange)
        self._metrics.in_flight += 1
        try:
            await self._app(exchange.scope, exchange.receive, exchange.answering.send)
        except Exception as error:  # noqa: BLE001 - whatever it was, the caller gets a problem
            problem = failed(exchange.scope["method"], exchange.scope["path"], error)
            if not exchange.answering.status:
                await self._respond(problem, exchange.scope)(*exchange[:2], exchange.answering.send)
        finally:
            self._metrics.in_flight -= 1
            deadline.cancel()

    def _give_up(self, exchange: _Exchange) -> None:
        exchange.answering.late = asyncio.create_task(self._answer_late(exchange))

    async def _answer_late(self, exchange: _Exchange) -> None:
        # A stream that has begun may last, and an answer may have come in this very moment.
        if exchange.answering.status:
            return
        exchange.answering.over = True
        late = Problem(ServiceCode.UNANSWERED, f"there was no answer within {self._answer_s:g} seconds")
        await self._respond(late, exchange.scope)(*exchange[:2], exchange.answering.pass_on)
        self._record(exchange)

    def _record(self, exchange: _Exchange) -> None:
        scope, answering = exchange.scope, exchange.answering
        operation, seconds = _operation(scope), perf_counter() - exchange.begun
        self._metrics.answered(operation, answering.status, seconds)
        record = {
            "duration_ms": round(seconds * 1000),
            "operation": operation,
            "organisation": _organisation(scope),
            "request_id": answering.request_id,
            "status": answering.status,
        }
        _LOG.info("answered", extra=record)


class _Exchange(NamedTuple):
    """One request and its answer; ``begun`` is when, in seconds of the performance counter."""

    scope: Scope
    receive: Receive
    answering: Answering
    begun: float


def _operation(scope: Scope) -> str:
    return getattr(scope.get("route"), "operation_id", None) or "none"


def _organisation(scope: Scope) -> str:
    caller = _caller(scope)
    return caller.organisation if caller is not None else ""


def _caller(scope: Scope) -> Caller | None:
    state: Any = scope.get("state") or {}
    caller = state.get("caller")
    return caller if isinstance(caller, Caller) else None
