"""Strong entity tags (RFC 9110, 8.8.3): the digest of the very bytes, so equal tags mean equal bytes."""

from __future__ import annotations

import hashlib
from typing import Final

from fastapi import Request
from fastapi.responses import Response

from client.http.endpoints import JSON_TYPE
from ledger.wire import canonical_json as c
from ledger.wire.records import Record, write

_BYTES: Final = 16
_NOT_MODIFIED: Final = 304
_CACHE: Final = "private, no-cache"


def etag_of(data: bytes) -> str:
    """The tag of a representation, quotes included."""
    return f'"{c.base64url(hashlib.sha256(data).digest()[:_BYTES])}"'


def names(header: str | None, etag: str, *, weak: bool = False) -> bool:
    """Whether a list of tags names one; ``weak`` as If-None-Match compares them, else as If-Match does."""
    listed = [tag.strip() for tag in (header or "").split(",")]
    if weak:
        listed = [tag.removeprefix("W/") for tag in listed]
    return etag in listed or "*" in listed


def tagged_response(request: Request, answer: Record) -> Response:
    """The answer under its tag; 304 without a body, if the caller has it already."""
    data = write(answer)
    headers = {"cache-control": _CACHE, "etag": etag_of(data)}
    if "if-none-match" in request.headers and names(request.headers["if-none-match"], headers["etag"], weak=True):
        return Response(None, _NOT_MODIFIED, headers)
    return Response(data, 200, headers, JSON_TYPE)
