"""A live process that goes on twice with the same memory, as a virtual machine does whose snapshot is started again.

The second process has what a restored machine has: the keys, generators and counters of the first one, its process id,
its threads, each doing again what it was at, and its files as they were at that moment, in a folder of its own. Its
connections are dead. A machine of a clean room is a folder with ``data``, ``jobs``, ``keys`` and ``runs``, named by
relative paths, so that the working directory chooses the machine.
"""

from __future__ import annotations

import os
import shutil
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from trainer_adapter.run.progress import ProgressReporter
from trainer_adapter.session.lease_requests import LeaseRequest, LeaseRequests

LONG_S: Final = 60.0
FOLDERS: Final = ("data", "jobs", "keys")


class RequestHold:
    """Holds one request for a lease where it is, so that a process is cloned with that request under way."""

    def __init__(self, first: int | None, point: str) -> None:
        """Of the lease from step ``first`` on.

        Args:
            first: None holds nothing.
            point: ``asked``, before the request is sent, or ``granted``, before its answer is used.
        """
        self._first, self._point = first, point
        self._arrived, self._ended = threading.Event(), threading.Event()
        lease = LeaseRequests.lease

        def held(requests: LeaseRequests, wanted: LeaseRequest) -> None:
            self._at("asked", wanted)
            lease(requests, wanted)
            self._at("granted", wanted)

        setattr(LeaseRequests, "lease", held)  # noqa: B010 - a point to stop at

    def wait(self) -> None:
        """Return once it is held."""
        assert self._first is None or self._arrived.wait(LONG_S)

    def end(self) -> None:
        """Let it go on."""
        self._ended.set()

    def _at(self, point: str, wanted: LeaseRequest) -> None:
        if (wanted.first, point) == (self._first, self._point):
            self._arrived.set()
            assert self._ended.wait(LONG_S)


class Snapshot:
    """One snapshot of this process, taken by its main thread.

    Attributes:
        trace: where the process writes down what it does; a clone's is its own.
        is_clone: whether this process is the second one.
    """

    def __init__(self, run: str, clone: Path, trace: Path, hold: RequestHold, *, later: bool) -> None:
        """Of the machine in the working directory.

        Args:
            run: the run of the machine.
            hold: where a request for a lease is when the snapshot is taken.
            clone: the folder of the second machine, which is made.
            trace: beside the machines, named by the run.
            later: whether the clone goes on only once the first process has ended its run.
        """
        self.trace, self.is_clone = trace, False
        self._run, self._clone, self._hold, self._later = run, clone, hold, later
        self._reporting, self._child, self._pipe = threading.Lock(), 0, -1
        report = ProgressReporter._report  # noqa: SLF001 - no request of that thread may be half sent

        def whole(reporter: ProgressReporter, steps: int) -> bool:
            with self._reporting:
                return report(reporter, steps)

        setattr(ProgressReporter, "_report", whole)  # noqa: B010 - as above

    def take(self) -> None:
        """Go on twice."""
        self._hold.wait()
        number, threads = os.getpid(), [one for one in threading.enumerate() if one is not threading.main_thread()]
        read, self._pipe = os.pipe()
        with self._reporting:
            for name in FOLDERS:
                shutil.copytree(name, self._clone / name)
            shutil.copytree(f"runs/{self._run}", self._clone / "runs" / self._run)
            self._child = os.fork()
        self._hold.end()
        if self._child:
            os.close(read)
            return
        os.close(self._pipe)
        self.is_clone = True
        # A restored machine's processes have the numbers they had.
        setattr(os, "getpid", lambda: number)  # noqa: B010 - as above
        self._own_files()
        os.chdir(self._clone)
        if self._later:
            os.read(read, 1)
        for one in threads:
            _again(one)

    def status(self, own: int) -> int:
        """The exit status of both: the first process's, and twice the clone's."""
        if self.is_clone or not self._child:
            return own
        os.close(self._pipe)
        _, clone = os.waitpid(self._child, 0)
        return own | os.waitstatus_to_exitcode(clone) << 1

    def _own_files(self) -> None:
        """Put the clone's files, and dead connections, in place of the first process's."""
        folder, trace = Path(f"runs/{self._run}").resolve(), self.trace.resolve()
        self.trace = trace.with_name(f"{self._run}-clone{trace.suffix}")
        for link in [*Path("/proc/self/fd").iterdir()]:
            descriptor = int(link.name)
            with suppress(FileNotFoundError):
                path = link.readlink()
                if path.is_relative_to(folder):
                    _replace(descriptor, self._clone / "runs" / self._run / path.relative_to(folder))
                elif path == trace:
                    _replace(descriptor, self.trace)
                elif str(path).startswith("socket:"):
                    _cut(descriptor)


def _again(thread: threading.Thread) -> None:
    """Start what a thread of the first process was at."""
    target, arguments = getattr(thread, "_target"), getattr(thread, "_args")  # noqa: B009 - a thread tells it no other way
    threading.Thread(target=target, args=arguments, name=thread.name, daemon=True).start()


def _replace(descriptor: int, path: Path) -> None:
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_APPEND | os.O_CREAT
    new = os.open(path, flags, 0o600)
    os.dup2(new, descriptor)
    os.close(new)


def _cut(descriptor: int) -> None:
    """A connection whose other end is gone."""
    here, there = socket.socketpair()
    there.close()
    os.dup2(here.fileno(), descriptor)
    here.close()
