"""A service on a port of its own with limits of a test, and raw sockets that speak to it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from anyio.lowlevel import checkpoint
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, StreamingResponse

from api.http import problems
from api.server.connection_limits import Connection, Limits
from api.server.http_server import serving
from client.http.endpoints import PROBLEM_TYPE

GET: Final = b"GET /size HTTP/1.1\r\nhost: here\r\n"
POST: Final = b"POST /size HTTP/1.1\r\nhost: here\r\n"
PATIENCE_S: Final = 30


def app() -> FastAPI:
    """Tells how large a request's headers and body are; streams until it is left."""
    app = FastAPI()
    problems.install(app)

    @app.api_route("/size", methods=["GET", "POST"])
    async def size(request: Request) -> PlainTextResponse:
        body = await request.body()
        head = sum(len(name) + len(value) for name, value in request.scope["headers"])
        return PlainTextResponse(f"{head} {len(body)}")

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        async def lines() -> Any:  # noqa: ANN401 - an asynchronous generator
            while True:
                await checkpoint()
                yield b"x" * 65_536

        return StreamingResponse(lines())

    @app.post("/deaf")
    def deaf() -> PlainTextResponse:
        return PlainTextResponse("not read")

    return app


@contextmanager
def served(served_app: FastAPI | None = None, **changed: Any) -> Iterator[tuple[str, int]]:  # noqa: ANN401 - of Limits
    """A service with changed limits; its address."""

    class Bounded(Connection):
        """With limits of this test."""

        limits = Limits(**changed)

    with serving(served_app or app(), connection=Bounded) as url:
        split = urlsplit(url)
        yield str(split.hostname), int(split.port or 0)


def connect(door: tuple[str, int], source: str = "") -> socket.socket:
    """A connection, from an address if one is given."""
    return socket.create_connection(door, timeout=PATIENCE_S, source_address=(source, 0) if source else None)


def heard(connection: socket.socket) -> bytes:
    """All that comes until the service closes."""
    found = bytearray()
    try:
        while data := connection.recv(65_536):
            found += data
    except ConnectionResetError:
        pass
    return bytes(found)


def sent(door: tuple[str, int], *pieces: bytes) -> bytes:
    """All that is answered to pieces that are sent one after the other."""
    with connect(door) as connection:
        for piece in pieces:
            try:
                connection.sendall(piece)
            except (BrokenPipeError, ConnectionResetError):
                break
        return heard(connection)


def problem_of(answer: bytes) -> tuple[int, str]:
    """Status and code of the one answer, which is a whole problem and says that it is the last."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    reported = json.loads(body)
    assert headers["content-type"] == PROBLEM_TYPE
    assert headers["connection"] == "close"
    assert int(headers["content-length"]) == len(body)
    assert status.split()[1] == str(reported["status"])
    return reported["status"], reported["code"]


def works(door: tuple[str, int]) -> bool:
    """Whether a request on a fresh connection is answered."""
    return b" 200 OK\r\n" in sent(door, GET + b"connection: close\r\n\r\n")
