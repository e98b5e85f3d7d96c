"""The HTTP server of a clean room that answers: on the loopback interface, for the contract's consumer alone.

``POST /v1/questions`` with a signed question: 202 while it waits, 200 with its answer once that has left, the same
bytes each time. Everything else is one sentence, as ``{"detail": ...}``: 401 without the consumer's signature, 400 for
a question of the wrong shape, 409 for another question under one id, 410 after the last, 413 for a body that is too
long, 429 where too many wait.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar, Final

from torch import Tensor

from client.http.endpoints import JSON_TYPE, SIGNATURE_HEADER
from client.keys.signer import Signer
from ledger.crypto.public_keys import PublicKey
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from trainer_adapter.ensembles.answer_room import AnswerRoom, Busy, Over
from trainer_adapter.ensembles.signed_questions import BODY_BYTES_MAX, PATH, NotSigned, answer_bytes, read_question

HOST: Final = "127.0.0.1"
IDLE_S: Final = 10.0
"""How long a connection may say nothing."""


@dataclass
class QuestionServer:
    """What decides on a request.

    Attributes:
        signer: the clean room's. like: a public record's inputs.
        keys: the consumer's keys in force, by thumbprint; replaced as the ledger's change.
    """

    charge: str
    room: AnswerRoom
    signer: Signer
    like: Tensor
    keys: Mapping[str, PublicKey] = field(default_factory=dict)

    def reply(self, data: bytes, signature: str) -> tuple[HTTPStatus, bytes, str]:
        """Status, body and signature of the reply to one request's bytes."""
        try:
            request = read_question(data, signature, self.keys, self.charge, self.like)
            given = self.room.ask(request.question)
            if given is None:
                return HTTPStatus.ACCEPTED, c.dump({"id": request.question.id, "waiting": True}), ""
            body = answer_bytes(self.charge, given, request.sealing)
        except Malformed as error:
            return _status(error), c.dump({"detail": str(error)}), ""
        return HTTPStatus.OK, body, self.signer.sign(body)


def _status(error: Malformed) -> HTTPStatus:
    match error:
        case NotSigned():
            return HTTPStatus.UNAUTHORIZED
        case Busy():
            return HTTPStatus.TOO_MANY_REQUESTS
        case Over():
            return HTTPStatus.GONE
        case _:
            return (
                HTTPStatus.CONFLICT
                if error.field == "id" and "another question" in error.rule
                else HTTPStatus.BAD_REQUEST
            )


@contextmanager
def serving(questions: QuestionServer, port: int) -> Iterator[str]:
    """Serve while the block runs; the address. Raises: OSError, if the port is taken."""

    class Handler(_Handler):
        at = questions

    with _Server((HOST, port), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, name="questions", daemon=True)
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Write nothing of a request that broke off: its sender is private."""


class _Handler(BaseHTTPRequestHandler):
    at: ClassVar[QuestionServer]
    timeout = IDLE_S
    protocol_version = "HTTP/1.1"
    server_version = "epsilon"
    sys_version = ""

    def do_POST(self) -> None:
        """One question."""
        length = self.headers.get("content-length", "")
        if self.path != PATH:
            self._send(HTTPStatus.NOT_FOUND, c.dump({"detail": f"only {PATH} is here"}), "")
        elif not length.isascii() or not length.isdecimal() or len(length) > 9:
            self._send(
                HTTPStatus.LENGTH_REQUIRED, c.dump({"detail": "content-length must say how long the body is"}), ""
            )
        elif int(length) > BODY_BYTES_MAX:
            rule = f"a question has at most {BODY_BYTES_MAX} bytes"
            self._send(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, c.dump({"detail": rule}), "")
        else:
            data = self.rfile.read(int(length))
            self._send(*self.at.reply(data, self.headers.get(SIGNATURE_HEADER, "")))

    def _send(self, status: HTTPStatus, body: bytes, signature: str) -> None:
        self.send_response(status)
        self.send_header("content-type", JSON_TYPE)
        self.send_header("content-length", str(len(body)))
        if signature:
            self.send_header(SIGNATURE_HEADER, signature)
        # What was not read of a body that is too long must not be read as the next request.
        if status is not HTTPStatus.OK and status is not HTTPStatus.ACCEPTED:
            self.close_connection = True
            self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Write no access log: questions, their senders and times are private."""
