"""The network between clean rooms and a service: it passes bytes on, and is cut in the middle of one request.

    python tests/trainer_adapter/cut_network.py DOOR PORT [PATH NUMBER POINT]

``DOOR`` is the descriptor of a listening socket, ``PORT`` where the service listens. It is cut at the request of this
``NUMBER`` (from 1 on) that is a POST to ``PATH``: ``asked``, before a byte of it is passed on; ``half``, after half of
what came first; ``answered``, before a byte of the answer is passed back; ``half_answer``, in the middle of it. Then it
writes ``cut``, swallows what belongs to that request, and waits to be killed: so whoever asked knows nothing yet.
"""

from __future__ import annotations

import socket
import sys
import threading
from contextlib import suppress
from typing import NoReturn

PIECE = 65_536


class Network:
    """Connections to one service."""

    def __init__(self, port: int, path: str = "", number: int = 0, point: str = "") -> None:
        """See above; without a path it is never cut."""
        self._port, self._path, self._left, self._point = port, path, number, point
        self._lock = threading.Lock()

    def serve(self, door: socket.socket) -> NoReturn:
        """Pass on what comes to a listening socket."""
        while True:
            client, _ = door.accept()
            # One whose service is gone ends without an answer.
            with suppress(OSError):
                service = socket.create_connection(("127.0.0.1", self._port))
                answer_cut = threading.Event()
                for passing, ends in ((self._ask, (client, service)), (self._answer, (service, client))):
                    threading.Thread(target=passing, args=(*ends, answer_cut), daemon=True).start()
                continue
            client.close()

    def _ask(self, client: socket.socket, service: socket.socket, answer_cut: threading.Event) -> None:
        with suppress(OSError):
            while data := client.recv(PIECE):
                if self._is_cut(data):
                    if self._point in {"asked", "half"}:
                        service.sendall(data[: len(data) // 2] if self._point == "half" else b"")
                        _end()
                    answer_cut.set()
                service.sendall(data)
        with suppress(OSError):
            service.shutdown(socket.SHUT_WR)

    def _answer(self, service: socket.socket, client: socket.socket, answer_cut: threading.Event) -> None:
        with suppress(OSError):
            while data := service.recv(PIECE):
                if answer_cut.is_set():
                    client.sendall(data[: len(data) // 2] if self._point == "half_answer" else b"")
                    _end()
                client.sendall(data)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def _is_cut(self, data: bytes) -> bool:
        if not self._path or not data.startswith(f"POST {self._path} ".encode()):
            return False
        with self._lock:
            self._left -= 1
            return self._left == 0


def _end() -> NoReturn:
    sys.stdout.write("cut\n")
    sys.stdout.flush()
    threading.Event().wait()
    raise AssertionError("no one sets it")


def main() -> None:
    """Until it is killed."""
    door, port, *cut = sys.argv[1:]
    network = Network(int(port), cut[0], int(cut[1]), cut[2]) if cut else Network(int(port))
    network.serve(socket.socket(fileno=int(door)))


if __name__ == "__main__":
    main()
