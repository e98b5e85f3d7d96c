"""A request that is retried for longer than a signature lasts is signed anew at each attempt."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from client.http.endpoints import SIGNATURE_HEADER
from client.keys.signer import Signer
from client.service.service import Service
from ledger.crypto.detached_jws import call_of, verify

AWAY_S = 400
"""Longer than a signature may be old."""


@contextmanager
def failing(times: int, now: list[int], seen: list[tuple[str, bytes]]) -> Iterator[str]:
    """A service that is away for a while, so many times, before it answers; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            seen.append((self.headers[SIGNATURE_HEADER], body))
            now[0] += AWAY_S
            self.send_response(HTTPStatus.OK if len(seen) > times else HTTPStatus.SERVICE_UNAVAILABLE)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_each_attempt_has_a_signature_of_its_own_time() -> None:
    """The same body and the same id; a service that comes back after minutes would refuse the first signature."""
    signer, now, seen = Signer.generate(), [1_795_000_000], list[tuple[str, bytes]]()
    began = now[0]
    with (
        failing(2, now, seen) as url,
        Service(url, attempts=3, backoff_s=0, clock=lambda: float(now[0])) as service,
    ):
        service.deposit_model_key(signer, "run-1", "ab" * 32, "sealed")
    calls = [call_of(signature) for signature, _ in seen]
    assert [call.time_s for call in calls if call is not None] == [began, began + AWAY_S, began + 2 * AWAY_S]
    assert len({body for _, body in seen}) == 1
    for signature, body in seen:
        verify(signature, body, signer.public)
