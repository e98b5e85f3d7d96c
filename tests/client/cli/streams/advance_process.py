"""A process that runs ``epsilon`` until it is killed: ``python -m tests.client.cli.streams.advance_process``.

A line of JSON on standard input, ``{"arguments":[...],"die":17,"now":1795297819000}``, makes it fork a child that runs
the command at that time (ms) and is killed at the 17th thing that it does: a folder or file that gets or loses a name,
and a request to the service, before it is sent and once it is answered. It reports ``["did", NAMES, CODE, OUTPUT]``
when a command ends by itself, with those things in order (:mod:`tests.factories.loaded_process`).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from importlib import import_module
from typing import Final
from unittest.mock import patch

import httpx
from typer import Typer
from typer.testing import CliRunner

from tests.factories.loaded_process import Job, report, serve

LOADED: Final = (
    "client.dataset_files.seal",
    "client.dataset_files.stream_advance",
    "client.profile.profile",
    "client.cli.main",
)
NAMES_CHANGED: Final = frozenset({"os.link", "os.mkdir", "os.remove", "os.rename", "shutil.rmtree"})


class Life:
    """What one child did, and at which of these things it dies."""

    def __init__(self, die: int) -> None:
        """``die`` counts from 1; 0 lets it live."""
        self.done: list[str] = []
        self._die = die

    def did(self, thing: str) -> None:
        """It does this now."""
        self.done.append(thing)
        if len(self.done) == self._die:
            os.kill(os.getpid(), signal.SIGKILL)

    def audited(self, name: str, _: object) -> None:
        """An event of the interpreter."""
        if name in NAMES_CHANGED:
            self.did(name)


class Clock:
    """The machine's clock, set to a time of its own; commands are signed by it."""

    def __init__(self) -> None:
        """At the machine's time."""
        self._now = time.time()

    def __call__(self) -> float:
        """Unix seconds."""
        return self._now

    def set(self, ms: int) -> None:
        """To a time (ms)."""
        self._now = ms / 1000


def main() -> None:
    """Serve until standard input ends."""
    # Programs take their clock when they are loaded, and children find them loaded.
    clock = time.time = Clock()
    app = [import_module(name) for name in LOADED][-1].app

    def run(job: Job) -> None:
        clock.set(job["now"])
        _run(app, job["arguments"], job["die"])

    serve(run)


def _run(app: Typer, arguments: list[str], die: int) -> None:
    life, send = Life(die), httpx.HTTPTransport.handle_request

    def counted(transport: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
        named = f"{request.method} {request.url.path}"
        life.did(f"to {named}")
        answer = send(transport, request)
        answer.read()
        life.did(f"from {named}")
        return answer

    patch.object(httpx.HTTPTransport, "handle_request", counted).start()
    sys.addaudithook(life.audited)
    result = CliRunner().invoke(app, arguments)
    report("did", life.done, result.exit_code, result.output)


if __name__ == "__main__":
    main()
