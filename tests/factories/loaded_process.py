"""A process that has loaded what its jobs need and forks a child for each of them, since to load takes seconds.

A job is an object of JSON, a line on standard input. Lines out are lists of JSON: ``["forked", PID]``, whatever the
child reports, and ``["ended", STATUS]`` once it has ended, however it did.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, cast

ROOT: Final = Path(__file__).resolve().parents[2]
WARM: Final = "warm"
"""The field of a job that runs in the process itself, for what it loads."""
Job = dict[str, Any]


def report(*values: object) -> None:
    """Report something to whoever sent the job."""
    os.write(1, json.dumps(values).encode() + b"\n")


def serve(run: Callable[[Job], None], warm: Callable[[Job], None] | None = None) -> None:
    """Fork a child for each job until standard input ends.

    Args:
        run: the whole life of a child.
        warm: runs the jobs that have :data:`WARM` in this process.
    """
    for line in sys.stdin:
        job = json.loads(line)
        if warm is not None and WARM in job:
            warm(job)
            report("ended", 0)
            continue
        pid = os.fork()
        if pid == 0:
            _live(run, job)
        report("forked", pid)
        _, status = os.waitpid(pid, 0)
        report("ended", status)


def _live(run: Callable[[Job], None], job: Job) -> None:
    """Run a job and end the process, which must not go on as its parent does."""
    try:
        run(job)
    except BaseException:  # noqa: BLE001 - whatever it is, it ends here and is shown
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


class Ended(NamedTuple):
    """A child that has ended: its status, as ``wait`` has it, and what it reported."""

    status: int
    reports: list[list[Any]]


class LoadedProcess:
    """The process that forks children, seen from the test."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """What speaks to a running process."""
        self._stdin, self._stdout = cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)

    def run(self, job: Job, forked: Callable[[int], object] | None = None) -> Ended:
        """One job from fork to end; ``forked`` is called with the child's id meanwhile."""
        self._stdin.write(json.dumps(job) + "\n")
        self._stdin.flush()
        reports: list[list[Any]] = []
        for line in self._stdout:
            word, *values = json.loads(line)
            if word == "ended":
                return Ended(values[0], reports)
            if word != "forked":
                reports.append([word, *values])
            elif forked is not None:
                forked(values[0])
        message = "the process that forks children ended"
        raise AssertionError(message)


@contextmanager
def loaded_process(module: str) -> Iterator[LoadedProcess]:
    """A module run as such a process, while the block runs; it ends without an error."""
    with subprocess.Popen(
        [sys.executable, "-m", module],
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield LoadedProcess(process)
        cast("IO[str]", process.stdin).close()
        assert process.wait(60) == 0
