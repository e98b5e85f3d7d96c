"""A process that verifies Ed25519 signatures, while the one that started it reads and decides.

Its answer is believed where it says that a signature verifies. Anything else (a signature that does not, a process that
ended, or that does not answer in time) leaves the signature to the caller, who verifies it as if there were no such
process. It runs the program of its parent, found by the parent's own path and not by the environment or the folder that
it is started in; it ends when its parent closes the pipe, or ends.

A piece of a request is the number of checks, then each: the length of its message, the 32 bytes of the key, the 64 of
the signature, and the message. The answer is a byte for each, 1 if it verifies, in order and a few at a time. Before
the first request it answers one byte, when both libraries have answered the edge cases.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from select import PIPE_BUF, POLLIN, poll
from time import monotonic
from typing import BinaryIO, Final

from ledger.crypto.ed25519 import KEY_BYTES, SIGNATURE_BYTES, Check, checked_libsodium, verifies

ANSWER_S: Final = 10.0
"""How long an answer is waited for: a request takes some 0.05 s."""
PIPE_BYTES_MAX: Final = 1_048_576
"""The size that is requested for the pipe to the process, which Linux grants to any user; a request is smaller."""
ANSWERED_TOGETHER: Final = 4
"""Checks whose answers the process writes at once."""
_COUNT: Final = struct.Struct("<I")
_PROGRAM: Final = (
    "import sys; sys.path[:] = sys.argv[1:]; from ledger.book.signatures.signature_process import serve; serve()"
)


class SignatureProcess:
    """The process, for one thread; one request at a time, which may go on while it is answered.

    Attributes:
        pid: its number.
        requested: how many checks the request has.
    """

    def __init__(self) -> None:
        """Start it; it is ready a little later. Raises: OSError, if no process can be started."""
        command = [sys.executable, "-I", "-c", _PROGRAM, *sys.path]
        # Closed after the process is waited for, in close(). Our own program, by this interpreter.
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)  # noqa: S603 - see above
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.pid = self._process.pid
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        # Not select, which knows the first 1,024 files of a process alone.
        self._answers = poll()
        self._answers.register(self._from, POLLIN)
        self._room = _pipe_bytes(self._to)
        # A pipe is full by pages, of which short writes leave parts unused: then the caller verifies, and never waits.
        os.set_blocking(self._to, False)
        self._ready = False
        self.requested, self._requested_at = 0, 0.0
        self._size = 0
        self._found = b""

    @property
    def is_ready(self) -> bool:
        """Whether it takes a request now, so that sending one does not wait; ended if it is late with an answer."""
        if self.requested and not self.confirms(self.requested - 1) and monotonic() - self._requested_at > ANSWER_S:
            self.close()
        if not self.has_ended and not self._ready and self.has_answered(0):
            self._ready = os.read(self._from, 1) == b"\x01"
            if not self._ready:
                self.close()
        return self._ready and len(self._found) == self.requested

    @property
    def has_ended(self) -> bool:
        """Whether it is of no more use."""
        return self._process.stdin is None or self._process.stdin.closed

    def has_answered(self, timeout_s: float) -> bool:
        """Whether there is something to read, or it has ended, in time."""
        return bool(self._answers.poll(timeout_s * 1_000))

    def send(self, checks: Sequence[Check]) -> int:
        """Request the first of these checks, as many as the pipe holds; returns how many. Only where it is ready."""
        self.requested, self._size, self._found = 0, 0, b""
        return self.send_more(checks)

    def send_more(self, checks: Sequence[Check]) -> int:
        """The same, as the next checks of the request, whether or not it has answered those before them."""
        pieces, size = [b""], self._size + _COUNT.size
        for key, signature, message in checks:
            more = _COUNT.size + len(key) + len(signature) + len(message)
            if size + more > self._room or len(key) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
                break
            size += more
            pieces += [_COUNT.pack(len(message)), key, signature, message]
        count = len(pieces) // 4
        if self.has_ended or not count:
            return 0
        pieces[0] = _COUNT.pack(count)
        data = b"".join(pieces)
        try:
            whole = os.write(self._to, data) == len(data)
        except OSError:
            whole = False
        if not whole:
            self.close()
            return 0
        self.requested, self._requested_at, self._size = self.requested + count, monotonic(), size
        return count

    def confirms(self, place: int) -> bool:
        """Whether it has said by now that a check verifies, by its place in the last request."""
        if len(self._found) <= place < self.requested:
            self._read_more(0)
        return self._found[place : place + 1] == b"\x01"

    def receive(self) -> list[bool]:
        """Whether each requested check verifies, waited for; empty if there is no answer."""
        while len(self._found) < self.requested:
            if not self._read_more(ANSWER_S):
                self.close()
        return [one == 1 for one in self._found]

    def _read_more(self, timeout_s: float) -> bool:
        """Read what it has answered; whether there was anything, in time."""
        some = os.read(self._from, self.requested) if self.has_answered(timeout_s) else None
        if some == b"":
            self.close()
        self._found += some or b""
        return bool(some)

    def close(self) -> None:
        """End it."""
        self._ready, self.requested, self._found = False, 0, b""
        if not self.has_ended:
            self._process.kill()
            # Closes the pipes too.
            with suppress(OSError):
                self._process.communicate()


def serve() -> None:
    """What the process does until its input ends."""
    # An interrupt from the keyboard is for the parent, which ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    checked_libsodium()
    os.write(1, b"\x01")
    requests = os.fdopen(0, "rb", buffering=PIPE_BYTES_MAX)
    while (head := requests.read(_COUNT.size)) and len(head) == _COUNT.size:
        (count,) = _COUNT.unpack(head)
        for start in range(0, count, ANSWERED_TOGETHER):
            together = range(start, min(start + ANSWERED_TOGETHER, count))
            os.write(1, bytes(verifies(*_next_check(requests)) for _ in together))


def _next_check(requests: BinaryIO) -> Check:
    (length,) = _COUNT.unpack(requests.read(_COUNT.size))
    return requests.read(KEY_BYTES), requests.read(SIGNATURE_BYTES), requests.read(length)


def _pipe_bytes(pipe: int) -> int:
    """How much the pipe takes without waiting: as much as Linux gives to anyone, elsewhere what POSIX promises."""
    if sys.platform != "linux":
        return PIPE_BUF
    with suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES_MAX)
    return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
