"""A process that verifies Ed25519 signatures, while the one that started it reads and decides.

Its answer is believed where it says that a signature verifies. Anything else (a signature that does not, a process that
ended, or that does not answer in time) leaves the signature to the caller, who verifies it as if there were no such
process. It runs the program of its parent, found by the parent's own path and not by the environment or the folder that
it is started in; it ends when its parent closes the pipe, or ends.

A request is the number of checks, then each: the length of its message, the 32 bytes of the key, the 64 of the
signature, and the message. The answer is a byte for each: 1 if it verifies. Before the first request it answers one
byte, when both libraries have answered the edge cases.
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
from typing import BinaryIO, Final

from ledger.crypto.ed25519 import KEY_BYTES, SIGNATURE_BYTES, Check, checked_libsodium, verifies

ANSWER_S: Final = 10.0
"""How long an answer is waited for: a request takes some 0.05 s."""
PIPE_BYTES_MAX: Final = 1_048_576
"""The size that the pipe to the process is asked to have, which Linux gives to anyone; a request is smaller."""
_COUNT: Final = struct.Struct("<I")
_PROGRAM: Final = (
    "import sys; sys.path[:] = sys.argv[1:]; from ledger.book.signatures.signature_process import serve; serve()"
)


class SignatureProcess:
    """The process, for one thread; one request at a time.

    Attributes:
        pid: its number.
    """

    def __init__(self) -> None:
        """Start it; it is ready a little later. Raises: OSError, if no process can be started."""
        command = [sys.executable, "-I", "-c", _PROGRAM, *sys.path]
        # Closed after the process is waited for, in close().
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)  # noqa: S603
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.pid = self._process.pid
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._room = _pipe_bytes(self._to)
        self._ready = False
        self._asked = 0

    @property
    def is_ready(self) -> bool:
        """Whether it takes a request now, so that sending one does not wait."""
        if not self.has_ended and not self._ready and self.has_answered(0):
            self._ready = os.read(self._from, 1) == b"\x01"
            if not self._ready:
                self.close()
        return self._ready and not self._asked

    @property
    def has_ended(self) -> bool:
        """Whether it is of no more use."""
        return self._process.stdin is None or self._process.stdin.closed

    def has_answered(self, timeout_s: float) -> bool:
        """Whether there is something to read, or it has ended, in time."""
        # Not select, which knows the first 1,024 files of a process alone.
        waiting = poll()
        waiting.register(self._from, POLLIN)
        return bool(waiting.poll(timeout_s * 1_000))

    def send(self, checks: Sequence[Check]) -> int:
        """Ask for the first of these checks, as many as the pipe holds; returns how many. Only where it is ready."""
        pieces, size = [b""], _COUNT.size
        for key, signature, message in checks:
            size += _COUNT.size + len(key) + len(signature) + len(message)
            if size > self._room or len(key) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
                break
            pieces += [_COUNT.pack(len(message)), key, signature, message]
        count = len(pieces) // 4
        pieces[0] = _COUNT.pack(count)
        try:
            # The pipe is empty and has room for all of it.
            os.write(self._to, b"".join(pieces))
        except OSError:
            self.close()
            return 0
        self._asked = count
        return count

    def receive(self) -> list[bool]:
        """Whether each check that was asked for verifies, waited for; empty if there is no answer."""
        found = b""
        while len(found) < self._asked:
            some = os.read(self._from, self._asked) if self.has_answered(ANSWER_S) else b""
            if not some:
                self.close()
                found = b""
                break
            found += some
        self._asked = 0
        return [one == 1 for one in found]

    def close(self) -> None:
        """End it."""
        self._ready, self._asked = False, 0
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
        answers = bytes(verifies(*_next_check(requests)) for _ in range(_COUNT.unpack(head)[0]))
        os.write(1, answers)


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
