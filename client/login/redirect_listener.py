"""The redirect URI: a loopback address that receives one authorization response (RFC 8252, section 7.3).

Any program of the machine, and any web page that finds the port, can send something to it. What lacks the state of this
login is turned away and forgotten, and the wait goes on: no number of such answers ends it, but its own time does.
"""

from __future__ import annotations

import queue
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qs, urlsplit

from client.http.problems import Unreachable

PATH: Final = "/callback"
FIELDS_MAX: Final = 32
REQUEST_S: Final = 10
_LOOPBACK: Final = "127.0.0.1"
_PAGE: Final = "<!doctype html><meta charset=utf-8><title>Epsilon Ledger</title><p>{}</p>"
_HEADERS: Final = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'",
    "content-type": "text/html; charset=utf-8",
    "referrer-policy": "no-referrer",
}
Answer = dict[str, str]


class Redirect(ThreadingHTTPServer):
    """Receives the first answer to one login; what comes to another address, of another login or later, is refused."""

    daemon_threads = True
    block_on_close = False
    # No other program may listen where the code is about to arrive.
    allow_reuse_address = False

    def __init__(self, port: int = 0) -> None:
        """Listen on 127.0.0.1; port 0 takes a free one. Raises: OSError."""
        super().__init__((_LOOPBACK, port), _Handler)
        self.answers: queue.Queue[Answer] = queue.Queue()
        self.first = threading.Lock()
        self.turned_away = 0
        self._state: bytes | None = None

    def handle_error(self, *_: object) -> None:
        """Report nothing of a browser that closed the connection."""

    @property
    def url(self) -> str:
        """The redirect URI."""
        return f"http://{_LOOPBACK}:{self.server_port}{PATH}"

    def expect(self, state: str) -> None:
        """Take the answer that has this state; until it is known, none is taken."""
        self._state = state.encode()

    def is_expected(self, answer: Answer) -> bool:
        """Whether an answer has the state of this login."""
        # In constant time: the time of an answer must not tell how much of a guessed state is right.
        return self._state is not None and secrets.compare_digest(answer.get("state", "").encode(), self._state)

    def wait(self, timeout_s: float) -> Answer:
        """The first answer. Raises: Unreachable, if none came within ``timeout_s`` seconds."""
        try:
            return self.answers.get(timeout=timeout_s)
        except queue.Empty:
            others = "; answers to another login (state) were turned away" if self.turned_away else ""
            raise Unreachable(f"the browser did not come back within {timeout_s:g} s{others}") from None


@contextmanager
def listening(port: int = 0) -> Iterator[Redirect]:
    """A :class:`Redirect` while the block runs. Raises: OSError, if the port is taken."""
    with Redirect(port) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_S
    server: Redirect

    def do_GET(self) -> None:
        """One request of a browser."""
        target = urlsplit(self.path)
        if target.path != PATH:
            self._respond(HTTPStatus.NOT_FOUND, "Not found.")
            return
        try:
            fields = parse_qs(target.query, keep_blank_values=True, strict_parsing=True, max_num_fields=FIELDS_MAX)
        except ValueError:
            fields = {}
        # A repeated parameter is invalid (RFC 6749, section 3.1).
        if not fields or any(len(values) != 1 for values in fields.values()):
            self._respond(HTTPStatus.BAD_REQUEST, "This is not an authorization response.")
            return
        answer = {name: values[0] for name, values in fields.items()}
        if not self.server.is_expected(answer):
            self.server.turned_away += 1
            self._respond(HTTPStatus.BAD_REQUEST, "This is the answer to another login.")
        elif self.server.first.acquire(blocking=False):
            # The page first: the program may end as soon as it has the answer.
            try:
                self._respond(HTTPStatus.OK, "You may close this page: the terminal says whether you are logged in.")
            finally:
                self.server.answers.put(answer)
        else:
            self._respond(HTTPStatus.GONE, "An earlier answer was received: the terminal says what became of it.")

    def _respond(self, status: HTTPStatus, sentence: str) -> None:
        page = _PAGE.format(sentence).encode()
        self.send_response_only(status)
        for name, value in {**_HEADERS, "content-length": str(len(page))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_: object) -> None:
        """Log nothing: a request holds the code."""
