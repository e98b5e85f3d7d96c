"""A connection is closed only while nothing is asked on it, however late a request comes and its answer is."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from anyio.to_thread import run_sync
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse

from tests.api.server.raw_http import GET, PATIENCE_S, connect, heard, served

IDLE_S: Final = 0.4
HEAD_S: Final = 2.5
WHOLE: Final = GET + b"\r\n"
HELD: Final = b"GET /held HTTP/1.1\r\nhost: here\r\n\r\n"
STALL: Final = b"GET /stall HTTP/1.1\r\nhost: here\r\n\r\n"
POLLS: Final = 3


class Door:
    """A service that keeps connections for :data:`IDLE_S`, and answers ``/held`` when it is told to."""

    def __init__(self, stall_s: float = 2 * IDLE_S) -> None:
        """Nothing is asked yet."""
        self.stall_s = stall_s
        self.released = threading.Event()
        self.stalled, self.asked = threading.Event(), threading.Event()
        self.address = "", 0

    def app(self) -> FastAPI:
        """Three routes: at once, when told, and one that stops the whole process for a while."""
        app = FastAPI()

        @app.get("/size")
        async def size() -> PlainTextResponse:
            return PlainTextResponse("at once")

        @app.get("/held")
        async def held() -> PlainTextResponse:
            await run_sync(self.released.wait, PATIENCE_S)
            return PlainTextResponse("held")

        @app.get("/stall")
        async def stall() -> PlainTextResponse:
            until = time.monotonic() + self.stall_s
            self.stalled.set()
            self.asked.wait(PATIENCE_S)
            # Nobody sets it: the loop waits with the route.
            threading.Event().wait(until - time.monotonic())
            return PlainTextResponse("stalled")

        return app

    def connect(self) -> socket.socket:
        """A connection on which one request was answered."""
        connection = connect(self.address)
        assert ask(connection, WHOLE)
        return connection

    def wait_for_idle(self) -> None:
        """Until a connection on which nothing is asked, and whose last answer is of now, was closed."""
        with self.connect() as idle:
            assert heard(idle) == b""


def ask(connection: socket.socket, raw: bytes) -> bool:
    """Send a request in one packet; whether it is answered."""
    connection.sendall(raw)
    return answered(connection)


def answered(connection: socket.socket) -> bool:
    """Whether the next answer comes; it is read whole."""
    data = b""
    while (piece := connection.recv(65_536)) != b"":
        data += piece
        head, ended, body = data.partition(b"\r\n\r\n")
        if ended and len(body) == int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]):
            break
    return data.startswith(b"HTTP/1.1 200 OK")


@pytest.fixture
def door() -> Iterator[Door]:
    """The service."""
    with _door() as found:
        yield found


@contextmanager
def _door() -> Iterator[Door]:
    door = Door()
    with served(door.app(), idle_s=IDLE_S) as door.address:
        yield door


def test_an_answer_may_take_longer_than_a_connection_is_kept(door: Door) -> None:
    """The second request comes whole, in one packet; others that only wait are closed before it is answered."""
    with door.connect() as kept:
        kept.sendall(HELD)
        door.wait_for_idle()
        door.released.set()
        assert answered(kept)
        assert ask(kept, WHOLE)


def test_a_request_begun_behind_another_is_answered_too(door: Door) -> None:
    """Half its head comes before the first answer, the rest after it."""
    with door.connect() as kept:
        kept.sendall(WHOLE + HELD[:10])
        assert answered(kept)
        kept.sendall(HELD[10:])
        door.wait_for_idle()
        door.released.set()
        assert answered(kept)


def test_who_polls_at_the_edge_is_always_answered(door: Door) -> None:
    """Each request is on its way when the time ends, to a service that stands still: it is read before the end."""
    with door.connect() as kept:
        for _ in range(POLLS):
            with connect(door.address) as busy:
                busy.sendall(STALL)
                assert door.stalled.wait(PATIENCE_S)
                kept.sendall(WHOLE)
                door.asked.set()
                assert answered(busy)
                assert answered(kept)
            door.stalled.clear()
            door.asked.clear()


def test_a_service_that_stood_still_gives_the_time_for_a_head_once_more() -> None:
    """The first request comes after its deadline, at which the service stood still."""
    door = Door(stall_s=2 * HEAD_S)
    with served(door.app(), head_s=HEAD_S) as door.address, connect(door.address) as slow:
        door.asked.set()
        with connect(door.address) as busy:
            assert ask(busy, STALL)
            # An answer to what came after the stall: by then the loop has looked at its deadlines.
            assert ask(busy, WHOLE)
        assert ask(slow, WHOLE)


def test_what_is_idle_is_closed(door: Door) -> None:
    """After an answer, and after nothing but a line's end, which begins no request."""
    door.wait_for_idle()
    with door.connect() as kept:
        kept.sendall(b"\r\n")
        assert heard(kept) == b""
