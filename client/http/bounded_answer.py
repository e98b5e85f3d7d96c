"""One answer, read whole: of at most so many bytes, within so many seconds.

The timeouts of httpx begin again with each piece that comes, and it holds all of an answer before anything looks at
how long that is. What is packed grows in memory, so answers are requested, and taken, as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import httpx

from ledger.wire.malformed import Malformed

_ENCODING: Final = "content-encoding"
_OF_THE_WIRE: Final = frozenset({_ENCODING, "content-length", "transfer-encoding"})
_PLAIN: Final = "identity"


def read_answer(  # noqa: PLR0913 - what is requested, and what bounds the answer
    http: httpx.Client,
    request: httpx.Request,
    bytes_max: int,
    answer_s: float,
    field: str = "answer",
    *,
    clock: Callable[[], float] = time.monotonic,
) -> httpx.Response:
    """Send a request, and read the answer to it.

    Args:
        http: the connections.
        request: made by them.
        bytes_max: the body has at most so many bytes.
        answer_s: seconds from the request to the answer's end.
        field: what an error names.
        clock: seconds that only rise.

    Raises:
        Malformed: for more bytes, or what is packed.
        httpx.ReadTimeout: for more seconds. httpx.RequestError.
    """
    request.headers["accept-encoding"] = _PLAIN
    until, body = clock() + answer_s, bytearray()
    response = http.send(request, stream=True)
    try:
        if (encoding := response.headers.get(_ENCODING, _PLAIN)) != _PLAIN:
            raise Malformed(field, f"is packed as {encoding[:32]!r}, and was requested as it is")
        for piece in response.iter_bytes():
            body += piece
            if len(body) > bytes_max:
                raise Malformed(field, f"has more than {bytes_max} bytes")
            if clock() > until:
                raise httpx.ReadTimeout(f"took more than {answer_s:g} seconds", request=request)
    finally:
        response.close()
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in _OF_THE_WIRE]
    return httpx.Response(response.status_code, headers=headers, content=bytes(body), request=request)
