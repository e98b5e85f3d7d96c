"""One answer is bounded as a whole: in bytes, however it is packed, and in seconds, however it comes."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
import torch

from client.http.bounded_answer import read_answer
from client.http.retry_policy import RetryPolicy
from client.http.token_endpoint import token_endpoint
from client.http.transport import Sender
from client.keys.signer import Signer
from ledger.wire.malformed import Malformed
from trainer_adapter.ensembles.question_client import QuestionClient

SENT_MIB = 96
"""More than any answer has, and than two sockets hold."""
URL = "http://ledger.example/v1/log"


class Endless(ThreadingHTTPServer):
    """A server whose answers are spaces, far too many; ``cut`` once a caller ended one."""

    def __init__(self) -> None:
        """On this machine."""
        super().__init__(("127.0.0.1", 0), _Spaces)
        self.cut, self.done = False, threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Spaces(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Endless

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.do_GET()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for _ in range(SENT_MIB):
                self.wfile.write(b"100000\r\n" + b" " * (1 << 20) + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.server.cut = self.close_connection = True
        self.server.done.set()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endless() -> Iterator[Endless]:
    """The server, until the test ends."""
    with Endless() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _send(url: str) -> object:
    with httpx.Client(base_url=url) as http:
        return Sender(http, None, RetryPolicy(1), time.time).send("GET", "/v1/log")


def _ask(url: str) -> object:
    with QuestionClient(url, "run-1", Signer.generate().public, Signer.generate(), lambda _: None) as client:
        return list(client.ask([torch.zeros(3)]))


@pytest.mark.parametrize("call", [_send, token_endpoint, _ask], ids=["service", "issuer", "room"])
def test_no_caller_reads_an_answer_without_end(endless: Endless, call: Callable[[str], object]) -> None:
    """It is ended while it comes, by its length, and held no further."""
    with pytest.raises(Malformed, match=r"^(answer|room): has more than [0-9]+ bytes"):
        call(endless.url)
    assert endless.done.wait(60)
    assert endless.cut


def _client(status: int, pieces: Iterator[bytes], **headers: str) -> httpx.Client:
    return httpx.Client(
        transport=httpx.MockTransport(lambda _: httpx.Response(status, headers=headers, content=pieces))
    )


def test_an_answer_that_trickles_ends_in_time() -> None:
    """Each piece comes well within the client's own timeout; all of them do not within the answer's."""
    now = [0.0]

    def trickle() -> Iterator[bytes]:
        for _ in range(1_000):
            now[0] += 1
            yield b" "

    http = _client(200, trickle())
    with pytest.raises(httpx.ReadTimeout, match="took more than 10 seconds"):
        read_answer(http, http.build_request("GET", URL), 1 << 20, 10, clock=lambda: now[0])
    assert now == [11]


def test_what_is_packed_is_not_unpacked() -> None:
    """Nothing is requested so; a few bytes of it would be a gigabyte."""
    http = _client(200, iter([gzip.compress(bytes(1 << 20))]), **{"content-encoding": "gzip"})
    request = http.build_request("GET", URL)
    with pytest.raises(Malformed, match="is packed as 'gzip', and was requested as it is"):
        read_answer(http, request, 1 << 30, 10)
    assert request.headers["accept-encoding"] == "identity"


def test_an_answer_within_its_bounds_is_whole() -> None:
    """Status, headers and bytes, to the last that may be there."""
    http = _client(429, iter([b"{", b"}"]), **{"content-type": "application/json", "retry-after": "7"})
    found = read_answer(http, http.build_request("GET", URL), 2, 10)
    assert (found.status_code, found.content, found.headers["retry-after"], found.text) == (429, b"{}", "7", "{}")
