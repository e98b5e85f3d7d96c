"""Reading a request body within bounds: refused by its declared length, or as soon as it grows too long."""

from __future__ import annotations

from fastapi import Request

from api.problems import Fault, Problem
from client.paths import JSON_TYPE, SIGNATURE_HEADER
from ledger.commands import COMMAND_BYTES_MAX
from ledger.gate import DOCUMENT_BYTES_MAX
from ledger.outcomes import Code


async def json_bytes(request: Request) -> bytes:
    """The raw bytes of a JSON body, at most those of a command. Raises: Problem."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != JSON_TYPE:
        raise Problem(Fault.MEDIA_TYPE_UNSUPPORTED, f"the body must be {JSON_TYPE}", field="content-type")
    return await _bounded(request, COMMAND_BYTES_MAX)


async def document_bytes(request: Request) -> bytes:
    """The raw bytes of a document. Raises: Problem."""
    return await _bounded(request, DOCUMENT_BYTES_MAX)


async def signature(request: Request) -> str:
    """The one signature header. Raises: Problem."""
    values = request.headers.getlist(SIGNATURE_HEADER)
    if len(values) != 1 or not values[0]:
        detail = f"the header {SIGNATURE_HEADER} must be given once, with a detached JWS over the body"
        raise Problem(Code.SIGNATURE_MISSING, detail, field=SIGNATURE_HEADER)
    return values[0]


async def _bounded(request: Request, size_max: int) -> bytes:
    fault = Problem(Fault.TOO_LARGE, f"the body has more than the {size_max} bytes allowed")
    declared = request.headers.get("content-length", "0")
    # The server in front has already refused a length that is no number.
    if len(declared) > len(str(size_max)) or int(declared) > size_max:
        raise fault
    body = bytearray()
    async for chunk in request.stream():
        if len(body) + len(chunk) > size_max:
            raise fault
        body += chunk
    return bytes(body)
