"""Problem details (RFC 9457): every error has a stable code, whatever raised it.

    {"code":"policy_denied","detail":"...","field":"","id":"run-4","index":31,
     "reasons":[{"code":"lineage_cap","detail":"..."}],"status":403,
     "title":"A policy or contract denies it","type":"urn:epsilon:problem:policy_denied"}

Codes are those of :mod:`ledger.domain.outcomes`; the few that only HTTP knows are here.
"""

from __future__ import annotations

import logging
from http import HTTPMethod
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from msgspec import Meta
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.routing import Match

from api.http.answers import Answer
from api.http.field_types import one_of, schema_of
from client.http.endpoints import PROBLEM_TYPE, SIGNATURE_HEADER
from ledger.book.submitted_command import BookBusy, BookStopped
from ledger.domain.outcomes import Code, StableCode
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.routing import BaseRoute
    from starlette.types import Scope

_LOG: Final = logging.getLogger("api.problems")
_UNAUTHENTICATED: Final = 401


class Fault(StableCode):
    """Errors that only HTTP or the service itself can report; none is recorded."""

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
    TOO_MANY = 429, "The caller has too many of these open"
    HEAD_TOO_LARGE = 431, "The headers are larger than allowed"
    INTERNAL = 500, "Internal error; retry the same request"
    BUSY = 503, "The service is busy; retry the same request"
    STOPPED = 503, "The book stopped; retry the same command after the service restarts"
    UNANSWERED = 503, "The service took too long; retry the same command"
    KEY_STORE = 503, "The key store is unavailable; retry the same request"
    KEY_WITHHELD = 503, "The key release is recorded, but the key was withheld; retry the same command"


_CHALLENGES: Final[dict[Code | Fault, str]] = {
    Fault.TOKEN_MISSING: "Bearer",
    Fault.TOKEN_INVALID: 'Bearer error="invalid_token"',
}
_WAITS_S: Final[dict[Code | Fault, int]] = {
    Fault.BUSY: 2,
    Fault.KEY_STORE: 5,
    Fault.KEY_WITHHELD: 5,
    Fault.STOPPED: 30,
    Fault.TOO_MANY: 30,
    Fault.UNANSWERED: 5,
}
"""Seconds after which to retry (RFC 9110, 10.2.3)."""


class Problem(Exception):  # noqa: N818 - RFC 9457's word
    """One problem, to raise or to render. ``index`` is that of the entry that records it, if one does."""

    def __init__(  # noqa: PLR0913 - one argument per member of the body
        self,
        code: Code | Fault,
        detail: str,
        *,
        field: str = "",
        id: str = "",  # noqa: A002 - the wire's name
        index: int | None = None,
        reasons: tuple[c.Object, ...] = (),
        remaining: tuple[c.Object, ...] = (),
    ) -> None:
        """Describe this occurrence; ``remaining`` is the headroom where a request exceeded it."""
        super().__init__(detail)
        self.code = code
        self.status = code.http_status
        self._body: c.Object = {
            "code": code.word,
            "detail": detail,
            "field": field,
            "id": id,
            "index": index,
            "reasons": list(reasons),
            "status": code.http_status,
            "title": code.title,
            "type": f"urn:epsilon:problem:{code.word}",
            **({"remaining": list(remaining)} if remaining else {}),
        }

    @property
    def body(self) -> c.Object:
        """Its members, for where a problem is one item of an answer."""
        return self._body

    def response(self, headers: Mapping[str, str] | None = None) -> Response:
        """The HTTP answer."""
        extra = dict(headers or {})
        if self.status == _UNAUTHENTICATED:
            # RFC 9110, 15.5.2: a 401 names how to authenticate; RFC 6750, 3.1: and what was wrong with a token.
            extra["www-authenticate"] = _CHALLENGES.get(self.code, f'JWS header="{SIGNATURE_HEADER}"')
        if self.code in _WAITS_S:
            extra.setdefault("retry-after", str(_WAITS_S[self.code]))
        return Response(c.dump(self._body), self.status, {"cache-control": "no-store", **extra}, PROBLEM_TYPE)


class Reason(Answer, frozen=True):
    """One check that failed."""

    code: str
    detail: str


class RemainingShare(Answer, frozen=True):
    """The share of an account's capacity that is left."""

    holder: str
    partition: str
    share: str


class ProblemDetails(Answer, frozen=True):
    """RFC 9457; code is stable, and type is a name made of it."""

    code: Annotated[str, one_of(*sorted({item.word for group in (Code, Fault) for item in group}))]
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


def declared(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI responses for the problems a route may answer with; 405, 500 and 503 belong to every route."""
    return {status: _of_one_status(status) for status in (*statuses, 405, 500, 503)}


def _of_one_status(status: int) -> dict[str, Any]:
    known = {item.word: item.title for group in (Code, Fault) for item in group if item.http_status == status}
    form = {
        "title": f"Problem{status}",
        "allOf": [schema_of(ProblemDetails)],
        "properties": {"code": {"enum": sorted(known)}, "status": {"const": status}},
    }
    titles = "; ".join(f"`{word}`: {title}" for word, title in sorted(known.items()))
    return {"description": titles, "content": {PROBLEM_TYPE: {"schema": form}}}


def example(status: int, *, code: str = "", detail: str = "", **members: Any) -> c.Object:  # noqa: ANN401 - JSON
    """The body of a problem of one status, for the OpenAPI document; of the first code of that status by default."""
    codes: list[Code | Fault] = [item for group in (Code, Fault) for item in group if item.http_status == status]
    problem = Problem(next((item for item in codes if item.word == code), codes[0]), detail, **members)
    return dict(sorted(problem.body.items()))


def install(app: FastAPI) -> None:
    """Report every error of ``app`` as a problem."""

    @app.exception_handler(Problem)
    def _problem(_request: Request, fault: Problem) -> Response:
        return fault.response()

    @app.exception_handler(BookStopped)
    def _stopped(request: Request, fault: BookStopped) -> Response:
        # The operator finds the cause in the log.
        _LOG.error("%s %s: %s", request.method, request.url.path, fault)
        return Problem(Fault.STOPPED, "").response()

    @app.exception_handler(BookBusy)
    def _busy(_request: Request, fault: BookBusy) -> Response:
        return Problem(Fault.BUSY, str(fault)).response()

    @app.exception_handler(PoolTimeout)
    def _no_connection(_request: Request, _fault: PoolTimeout) -> Response:
        return Problem(Fault.BUSY, "every connection to the book is in use").response()

    @app.exception_handler(Malformed)
    def _malformed(_request: Request, fault: Malformed) -> Response:
        return Problem(Code.MALFORMED, str(fault), field=fault.field).response()

    @app.exception_handler(RequestValidationError)
    def _validation(_request: Request, fault: RequestValidationError) -> Response:
        first = fault.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:])
        return Problem(Code.MALFORMED, f"{field}: {first['msg']}", field=field).response()

    @app.exception_handler(HTTPException)
    def _http(request: Request, fault: HTTPException) -> Response:
        headers = dict(fault.headers or {})
        if fault.status_code == Fault.METHOD_NOT_ALLOWED.http_status:
            # Of several routes at one path the framework names the methods of the first.
            headers["Allow"] = ", ".join(sorted(_methods(request)))
        return _of_status(request, fault).response(headers)


def failed(method: str, path: str, fault: Exception) -> Problem:
    """An internal error: details for the log, none for the caller."""
    _LOG.error("%s %s failed with %s", method, path, type(fault).__name__, exc_info=fault)
    return Problem(Fault.INTERNAL, "")


def _methods(request: Request) -> set[str]:
    """Those that any route takes at this path, and HEAD beside GET."""
    found = {name for name in map(str, HTTPMethod) if _is_served({**request.scope, "method": name}, request.app.routes)}
    return {*found, "HEAD"} if "GET" in found else found


def _is_served(scope: Scope, routes: Iterable[BaseRoute]) -> bool:
    return any(one.matches(scope)[0] is Match.FULL for one in routes)


def _of_status(request: Request, fault: HTTPException) -> Problem:
    known: dict[int, tuple[Code | Fault, str]] = {
        Code.NOT_FOUND.http_status: (Code.NOT_FOUND, f"there is no resource at {request.url.path[:200]}"),
        Fault.METHOD_NOT_ALLOWED.http_status: (
            Fault.METHOD_NOT_ALLOWED,
            f"the resource does not support {request.method[:20]}",
        ),
    }
    code, detail = known.get(fault.status_code, (Fault.BAD_REQUEST, str(fault.detail)))
    return Problem(code, detail)
