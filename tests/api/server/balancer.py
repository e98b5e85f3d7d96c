"""A balancer in front of several services: it gives each new connection to the next of them, and sees only bytes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from typing import Final
from urllib.parse import urlsplit

from api.server.http_server import LOOPBACK, base_url, listen

_PIECE: Final = 65_536


@contextmanager
def balanced(listener: socket.socket, services: list[str], *, each_request: bool = False) -> Iterator[None]:
    """Forward what comes to a listening socket, while the block runs.

    Args:
        each_request: have the service close each connection after its first answer, so that callers come anew.
    """
    places = cycle([(str(urlsplit(url).hostname), int(urlsplit(url).port or 0)) for url in services])
    ends: list[socket.socket] = []

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                service = socket.create_connection(next(places))
                ends.extend((client, service))
                for source, sink, closes in ((client, service, each_request), (service, client, False)):
                    threading.Thread(target=_pump, args=(source, sink, closes), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield
    finally:
        # A thread that accepts is not woken by the closing of its socket alone.
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for end in ends:
            end.close()


def door() -> tuple[socket.socket, str]:
    """A socket to balance, and the URL that callers know all the services by."""
    listener = listen(LOOPBACK, 0)
    return listener, base_url(listener)


def _pump(source: socket.socket, sink: socket.socket, closes: bool) -> None:  # noqa: FBT001 - an argument of a thread
    with suppress(OSError):
        while data := source.recv(_PIECE):
            line, end, rest = data.partition(b"\r\n") if closes else (data, b"", b"")
            # Behind the request line, which comes in one piece.
            sink.sendall(line + (end and b"\r\nConnection: close\r\n") + rest)
            closes = closes and not end
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
