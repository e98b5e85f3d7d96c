"""Request bodies within bounds: refused by the declared length, or as soon as they grow too long."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

from fastapi import Depends, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from api.http.field_types import DetachedJws, schema_of
from api.http.problems import Problem, ServiceCode
from client.http.endpoints import JSON_TYPE, SIGNATURE_HEADER
from client.watermarks.fingerprint_file import FINGERPRINT_BYTES_MAX
from ledger.domain.command import COMMAND_BYTES_MAX
from ledger.domain.gate import POLICY_DOCUMENT_BYTES_MAX
from ledger.domain.outcomes import Code
from ledger.wire.malformed import Malformed

BATCH_BYTES_MAX: Final = 1 << 20
PLAN_BYTES_MAX: Final = COMMAND_BYTES_MAX + POLICY_DOCUMENT_BYTES_MAX
"""A planned run, perhaps with the policy that it is decided under."""
BODY_S: Final = 20
"""How long a body may take to arrive."""
SIGNATURE_PARAMETER: Final[dict[str, Any]] = {
    "name": SIGNATURE_HEADER,
    "in": "header",
    "required": True,
    "description": "detached JWS (RFC 7797) over exactly the body, made for this request: htm, htu, iat, jti",
    "schema": schema_of(DetachedJws),
}
_REPEATED: Final = frozenset({"member"})
"""Parameters that are lists."""


class _Body:
    """The raw bytes of a body of at most ``size_max`` bytes."""

    def __init__(self, size_max: int, media_type: str | None = JSON_TYPE) -> None:
        """``media_type``: the only one that is read; None for any."""
        self._size_max, self._media_type = size_max, media_type

    async def __call__(self, request: Request) -> bytes:
        """Read them. Raises: Problem."""
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if self._media_type is not None and media_type != self._media_type:
            detail = f"the body must be {self._media_type}"
            raise Problem(ServiceCode.MEDIA_TYPE_UNSUPPORTED, detail, field="content-type")
        return await bounded(request, self._size_max)


async def signature(request: Request) -> str:
    """The one signature header. Raises: Problem."""
    values = request.headers.getlist(SIGNATURE_HEADER)
    if len(values) != 1 or not values[0]:
        detail = f"send the header {SIGNATURE_HEADER} once, with a detached JWS over the body"
        raise Problem(Code.SIGNATURE_MISSING, detail, field=SIGNATURE_HEADER)
    return values[0]


async def bounded(request: Request, size_max: int, within_s: float = BODY_S) -> bytes:
    """The body, unless it is longer or takes longer to arrive. Raises: Problem."""
    declared = request.headers.get("content-length", "0")
    # The server has already refused a length that is not a number.
    if len(declared) > len(str(size_max)) or int(declared) > size_max:
        raise _too_large(size_max)
    body = bytearray()
    try:
        async with asyncio.timeout(within_s):
            async for chunk in request.stream():
                if len(body) + len(chunk) > size_max:
                    raise _too_large(size_max)
                body += chunk
    except TimeoutError:
        raise Problem(ServiceCode.TIMED_OUT, f"the body took more than the {within_s:g} seconds allowed") from None
    except ClientDisconnect:
        # No one receives it; the log counts it as an error of the caller, not of the service.
        raise Problem(ServiceCode.BAD_REQUEST, "the body is incomplete") from None
    return bytes(body)


def _too_large(size_max: int) -> Problem:
    return Problem(ServiceCode.TOO_LARGE, f"the body has more than the {size_max} bytes allowed")


async def check_query(request: Request) -> None:
    """Allow only the route's own parameters, each once: a misspelt one must not count as absent. Raises: Malformed."""
    route = request.scope.get("route")
    if not request.scope["query_string"] or not isinstance(route, APIRoute):
        return
    known = _parameters(route.dependant)
    for name in request.query_params:
        if name not in known:
            raise Malformed(name[:100], "is not a parameter of this resource")
        if name not in _REPEATED and len(request.query_params.getlist(name)) > 1:
            raise Malformed(name, "is given more than once")


def _parameters(dependant: Dependant) -> set[str]:
    named = {field.alias for field in dependant.query_params}
    return named.union(*map(_parameters, dependant.dependencies))


command_body: Final = _Body(COMMAND_BYTES_MAX)
"""The bytes of a command."""
Raw = Annotated[bytes, Depends(command_body)]
Batch = Annotated[bytes, Depends(_Body(BATCH_BYTES_MAX))]
Document = Annotated[bytes, Depends(_Body(POLICY_DOCUMENT_BYTES_MAX, None))]
Fingerprint = Annotated[bytes, Depends(_Body(FINGERPRINT_BYTES_MAX, None))]
PlanQuestion = Annotated[bytes, Depends(_Body(PLAN_BYTES_MAX))]
Signature = Annotated[str, Depends(signature)]
