"""Clients on bare sockets, so light that what is measured is the server: each sends its next request when answered."""

from __future__ import annotations

import re
import selectors
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final
from urllib.parse import urlsplit

_LENGTH: Final = re.compile(rb"\r\ncontent-length: ([0-9]+)\r\n", re.IGNORECASE)
_CHUNK: Final = 1 << 16
SILENCE_S: Final = 60


@dataclass(slots=True)
class Heard:
    """How often each status was answered, and how long each answer took, in seconds."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)


def request(url: str, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """A POST request as it goes over the wire."""
    lines = [f"POST {path} HTTP/1.1", f"host: {urlsplit(url).netloc}", f"content-length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii") + body


class _Client:
    """One connection, and the requests that are still to be sent on it."""

    def __init__(self, url: str, requests: Sequence[bytes]) -> None:
        place = urlsplit(url)
        self.socket = socket.create_connection((place.hostname or "", place.port or 80))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._requests, self._next = requests, 0
        self._sent = 0.0
        self._got = b""

    def send(self) -> bool:
        """Send the next request; False if there is none."""
        if self._next == len(self._requests):
            self.socket.close()
            return False
        self._got, self._sent = b"", perf_counter()
        self.socket.sendall(self._requests[self._next])
        self._next += 1
        return True

    def take(self, heard: Heard) -> bool:
        """Read what is there; whether the answer is whole now."""
        more = self.socket.recv(_CHUNK)
        assert more, self._got
        self._got += more
        head = self._got.find(b"\r\n\r\n")
        length = _LENGTH.search(self._got, 0, head + 2) if head >= 0 else None
        if length is None or len(self._got) < head + 4 + int(length[1]):
            return False
        heard.seconds.append(perf_counter() - self._sent)
        heard.statuses[int(self._got[9:12])] += 1
        return True


def send_all(url: str, plans: Sequence[Sequence[bytes]]) -> Heard:
    """Send what each client has to send, all clients at once, on a connection each."""
    heard, waiting = Heard(), 0
    with selectors.DefaultSelector() as ready:
        for plan in plans:
            client = _Client(url, plan)
            ready.register(client.socket, selectors.EVENT_READ, client)
            waiting += 1
            client.send()
        while waiting:
            found = ready.select(SILENCE_S)
            assert found, f"no answer for {SILENCE_S} s"
            for key, _ in found:
                client = key.data
                if client.take(heard):
                    ready.unregister(client.socket)
                    if client.send():
                        ready.register(client.socket, selectors.EVENT_READ, client)
                    else:
                        waiting -= 1
    return heard
