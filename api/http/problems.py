"""Problem details (RFC 9457): every error has a stable code, whatever raised it.

    {"code":"policy_denied","detail":"...","field":"","id":"run-4","index":31,
     "reasons":[{"code":"lineage_cap","detail":"..."}],"status":403,
     "title":"A policy or contract denies it","type":"urn:epsilon:problem:policy_denied"}

Codes are those of :mod:`ledger.domain.outcomes`; the few that only HTTP knows are here.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from http import HTTPMethod
from typing import Annotated, Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match

from api.http.field_types import one_of, schema_of
from client.http.endpoints import PROBLEM_TYPE, SIGNATURE_HEADER
from ledger.book.document_store import DocumentQuotaUsed
from ledger.book.submitted_command import BookBusy, BookPaused, BookStopped, PricingRefused, RowsDiffer
from ledger.domain.outcomes import Code, StableCode
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, write

ROWS_DIFFER: Final = "a row was changed by another hand: the service's log names it"
_LOG: Final = logging.getLogger("api.problems")
_UNAUTHENTICATED: Final = 401
_TURN_S: Final = 2
"""Seconds after which an organisation may have a turn to be priced."""


class ServiceCode(StableCode):
    """Errors that only HTTP or the service itself can report; none is recorded.

    Attributes:
        retry_s: seconds after which to retry (RFC 9110, 10.2.3), 0 where a retry does not help.
    """

    BAD_REQUEST = 400, "The service cannot read the request"
    TOKEN_MISSING = 401, "The request carries no access token"
    TOKEN_INVALID = 401, "The access token is invalid"
    METHOD_NOT_ALLOWED = 405, "The resource has no such method"
    TIMED_OUT = 408, "The request took too long to arrive"
    STALE = 412, "The resource has changed since the version that the request names"
    TOO_LARGE = 413, "The body is larger than allowed"
    URL_TOO_LONG = 414, "The URL is longer than allowed"
    MEDIA_TYPE_UNSUPPORTED = 415, "The service does not read this media type"
    VERSION_MISSING = 428, "The request must name the version that it replaces"
    TOO_MANY = 429, "The caller has too many of these open, or sent too many that are invalid", 30
    QUOTA_EXCEEDED = 429, "The caller's quota is used up"
    HEAD_TOO_LARGE = 431, "The headers are larger than allowed"
    INTERNAL = 500, "Internal error; retry the same request"
    BUSY = 503, "The service is busy; retry the same request", 2
    PAUSED = 503, "The service records nothing at present; retry the same request later", 30
    STOPPED = 503, "The book stopped; retry the same command after the service restarts", 30
    UNANSWERED = 503, "The service took too long; retry the same command", 5
    KEY_STORE = 503, "The key store is unavailable; retry the same request", 5
    KEY_WITHHELD = 503, "The key release is recorded, but the key was withheld; retry the same command", 5

    def __init__(self, http_status: int, title: str, retry_s: int = 0) -> None:
        """Not to be retried, unless it says otherwise."""
        super().__init__(http_status, title)
        self.retry_s = retry_s


_CODES: Final[tuple[StableCode, ...]] = (*Code, *ServiceCode)
_QUOTA_HEADERS: Final[dict[str, Any]] = {
    "ratelimit": {"description": "what is left of each quota, and when it is full again", "schema": {"type": "string"}},
    "ratelimit-policy": {"description": "the quotas of the caller or its address", "schema": {"type": "string"}},
    "retry-after": {"description": "seconds to wait", "schema": {"type": "integer", "minimum": 1}},
}
"""Of draft-ietf-httpapi-ratelimit-headers, and of RFC 9110, section 10.2.3."""
_CHALLENGES: Final[dict[StableCode, str]] = {
    ServiceCode.TOKEN_MISSING: "Bearer",
    ServiceCode.TOKEN_INVALID: 'Bearer error="invalid_token"',
}


class Reason(Record, frozen=True):
    """One check that failed."""

    code: str
    detail: str


class RemainingShare(Record, frozen=True):
    """The share of an account's capacity that is left."""

    holder: str
    partition: str
    share: str


class ProblemDetails(Record, frozen=True):
    """RFC 9457; code is stable, and type is a name made of it."""

    code: Annotated[str, one_of(*sorted({item.word for item in _CODES}))]
    detail: str
    field: Annotated[str, Meta(description="dotted path into the input; empty for the whole")]
    id: Annotated[str, Meta(description="the command's id; empty where none was read")]
    index: Annotated[int, Meta(description="of the entry that records the rejection")] | None
    reasons: tuple[Reason, ...]
    status: int
    title: str
    type: Annotated[str, Meta(extra_json_schema={"format": "uri"})]
    remaining: (
        Annotated[
            tuple[RemainingShare, ...],
            Meta(description="where there was no room: the share of each account's capacity that is left"),
        ]
        | None
    ) = None


class Problem(Exception):  # noqa: N818 - RFC 9457's word
    """One problem, to raise or to render. ``index`` is that of the entry that records it, if one does."""

    def __init__(  # noqa: PLR0913 - one argument per member of the body
        self,
        code: StableCode,
        detail: str,
        *,
        field: str = "",
        id: str = "",  # noqa: A002 - the wire's name
        index: int | None = None,
        reasons: tuple[Reason, ...] = (),
        remaining: tuple[RemainingShare, ...] = (),
        retry_s: int = 0,
    ) -> None:
        """Describe this occurrence.

        ``remaining`` is the headroom where a request exceeded it; ``retry_s``: seconds after which to retry, where the
        code does not say it.
        """
        super().__init__(detail)
        self.code = code
        self.status = code.http_status
        self._retry_s = retry_s or (code.retry_s if isinstance(code, ServiceCode) else 0)
        self.details = ProblemDetails.project(
            code,
            code=code.word,
            detail=detail,
            field=field,
            id=id,
            index=index,
            reasons=reasons,
            remaining=remaining or None,
            status=code.http_status,
            type=f"urn:epsilon:problem:{code.word}",
        )

    def response(self, headers: Mapping[str, str] | None = None) -> Response:
        """The HTTP answer."""
        extra = dict(headers or {})
        if self.status == _UNAUTHENTICATED:
            # RFC 9110, 15.5.2: a 401 names how to authenticate; RFC 6750, 3.1: and what was wrong with a token.
            extra["www-authenticate"] = _CHALLENGES.get(self.code, f'JWS header="{SIGNATURE_HEADER}"')
        if self._retry_s:
            extra.setdefault("retry-after", str(self._retry_s))
        return Response(write(self.details), self.status, {"cache-control": "no-store", **extra}, PROBLEM_TYPE)


def declared(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI responses for the problems a route may answer with; 405, 429, 500 and 503 belong to every route."""
    return {status: _of_one_status(status) for status in sorted({*statuses, 405, 429, 500, 503})}


def _of_one_status(status: int) -> dict[str, Any]:
    known = {item.word: item.title for item in _CODES if item.http_status == status}
    titles = "; ".join(f"`{word}`: {title}" for word, title in sorted(known.items()))
    # One flat schema for all: a generated client has one class for a problem, whatever its status.
    declared = {"description": titles, "content": {PROBLEM_TYPE: {"schema": schema_of(ProblemDetails)}}}
    return {**declared, "headers": _QUOTA_HEADERS} if status == ServiceCode.TOO_MANY.http_status else declared


def example(status: int, *, code: str = "", detail: str = "", **members: Any) -> c.Object:  # noqa: ANN401 - JSON
    """The body of a problem of one status, for the OpenAPI document; of the first code of that status by default."""
    codes = [item for item in _CODES if item.http_status == status]
    return Problem(next((item for item in codes if item.word == code), codes[0]), detail, **members).details.to_json()


def install(app: FastAPI) -> None:
    """Report every error of ``app`` as a problem."""
    for kind, problem_of in _PROBLEMS.items():

        def handle(
            request: Request, error: Exception, problem_of: Callable[[Request, Any], Problem] = problem_of
        ) -> Response:
            return problem_of(request, error).response(getattr(error, "headers", None))

        app.add_exception_handler(kind, handle)


def problem_of(request: Request, error: Exception) -> Problem | None:
    """The problem that reports an error, as :func:`install` has it reported; None for an internal error."""
    known = next((_PROBLEMS[kind] for kind in type(error).__mro__ if kind in _PROBLEMS), None)
    return None if known is None else known(request, error)


def failed(method: str, path: str, error: Exception) -> Problem:
    """An internal error: details for the log, none for the caller."""
    _LOG.error("%s %s failed with %s", method, path, type(error).__name__, exc_info=error)
    return Problem(ServiceCode.INTERNAL, "")


def _stopped(request: Request, error: BookStopped) -> Problem:
    # The operator finds the cause in the log.
    _LOG.error("%s %s: %s", request.method, request.url.path, error)
    return Problem(ServiceCode.STOPPED, "")


def _documents_used(_request: Request, error: DocumentQuotaUsed) -> Problem:
    """A quota of documents is used up: the caller's own, or that of all, which no quota of its own shows."""
    retry_s = max(1, math.ceil(error.wait_ms / 1000))
    code = ServiceCode.QUOTA_EXCEEDED if error.own else ServiceCode.BUSY
    return Problem(code, f"{error}: retry in {retry_s} s", retry_s=retry_s)


def pricing_refused(error: PricingRefused, name: str = "") -> Problem:
    """An organisation has no turn left to be priced, as too many of its commands wait or its quota is used up.

    ``name``: the id of the command.
    """
    if not error.wait_s:
        return Problem(ServiceCode.TOO_MANY, str(error), id=name, retry_s=_TURN_S)
    retry_s = math.ceil(error.wait_s)
    return Problem(ServiceCode.QUOTA_EXCEEDED, f"{error}: retry in {retry_s} s", id=name, retry_s=retry_s)


def _invalid(_request: Request, error: RequestValidationError) -> Problem:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:])
    return Problem(Code.MALFORMED, f"{field}: {first['msg']}", field=field)


def _of_status(request: Request, error: HTTPException) -> Problem:
    if error.status_code == Code.NOT_FOUND.http_status:
        return Problem(Code.NOT_FOUND, f"there is no resource at {request.url.path[:200]}")
    if error.status_code == ServiceCode.METHOD_NOT_ALLOWED.http_status:
        # Of several routes at one path the framework names the methods of the first.
        error.headers = {"Allow": ", ".join(sorted(_methods(request)))}
        return Problem(ServiceCode.METHOD_NOT_ALLOWED, f"the resource does not support {request.method[:20]}")
    return Problem(ServiceCode.BAD_REQUEST, str(error.detail))


def _methods(request: Request) -> set[str]:
    """Those that any route takes at this path, and HEAD beside GET."""
    scopes = ({**request.scope, "method": name} for name in map(str, HTTPMethod))
    routes: Iterable[BaseRoute] = request.app.routes
    served = {
        str(scope["method"]) for scope in scopes if any(route.matches(scope)[0] is Match.FULL for route in routes)
    }
    return {*served, "HEAD"} if "GET" in served else served


_PROBLEMS: Final[dict[type[Exception], Callable[[Request, Any], Problem]]] = {
    BookBusy: lambda _, error: Problem(ServiceCode.BUSY, str(error)),
    BookPaused: lambda _, error: Problem(ServiceCode.PAUSED, str(error)),
    BookStopped: _stopped,
    DocumentQuotaUsed: _documents_used,
    PricingRefused: lambda _, error: pricing_refused(error),
    RowsDiffer: lambda _, __: Problem(ServiceCode.STOPPED, ROWS_DIFFER),
    HTTPException: _of_status,
    Malformed: lambda _, error: Problem(Code.MALFORMED, str(error), field=error.field),
    Problem: lambda _, problem: problem,
    RequestValidationError: _invalid,
}
"""The problem that reports an error, by the class of the error."""
