"""Kills a run at a moment of its own choosing, and writes down every use of noise as it happens.

    python tests/trainer_adapter/kill_worker.py

reads one JSON object a line: ``job`` (a path), ``trace`` (a path), ``pid`` (where its process id is written), ``kill``
(a moment and how many of them to let pass, or null), ``resume``, and ``gate`` (null, or the path of a pipe: then the
child is held at the moment and not killed; it writes that it waits, and goes on once the pipe is opened for writing).
Where it has ``clone``, the child is neither killed nor held: there it goes on twice (``machine`` and ``run`` name its
folder, ``folder`` the clone's, ``later`` whether the clone goes on when the child's run is over, ``point`` where a
request for a lease is meanwhile). Each is run in a child of its own, and answered with the child's wait status.

The moments:
``begin`` and ``begun`` (before and after a block is made durable), ``noise`` and ``noised`` (before and after a step's
noise is drawn), ``saved`` (after a state is kept), ``post`` and ``posted`` (before and after the post is sent).
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from client.service.service import Service
from ledger.wire import canonical_json as c
from tests.trainer_adapter.cloned_process import RequestHold, Snapshot
from tests.trainer_adapter.killed_runs import LEFT
from tests.trainer_adapter.loaded_torch import load_torch
from trainer_adapter.cli.train import train_job
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.job.job_spec import Job
from trainer_adapter.job.step_log import StepLog
from trainer_adapter.run.checkpointing import CheckpointStore
from trainer_adapter.run.fenced_output import FencedOutput
from trainer_adapter.session.protocol import consumer_service


class Hook:
    """Counts moments, and ends the process at one of them."""

    def __init__(
        self, trace: Path, kill: tuple[str, int] | None, gate: str | None, clone: Callable[[], None] | None = None
    ) -> None:
        """``kill`` names a moment and how many of its kind to let pass first; with a ``gate`` it is a wait there.

        With ``clone`` that is called there.
        """
        self._clone = clone
        self._trace = os.open(trace, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._kill, self._gate = kill, gate
        self._seen: dict[str, int] = {}

    def __call__(self, moment: str, note: str = "") -> None:
        """It happens now."""
        if note:
            os.write(self._trace, f"{note}\n".encode())
        seen = self._seen[moment] = self._seen.get(moment, 0) + 1
        if self._kill is None or moment != self._kill[0] or seen <= self._kill[1]:
            return
        if self._clone is not None:
            self._kill = None
            self._clone()
        elif self._gate is None:
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            self._kill = None
            Path(self._gate).write_bytes(b"held")
            Path(self._gate).read_bytes()

    def around(
        self, owner: type, name: str, before: str, after: str, note: Callable[..., str | None] = lambda *_: ""
    ) -> None:
        """Tell of two moments whenever a method is called, where ``note`` does not say to keep quiet."""
        method = getattr(owner, name)

        def told(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever the method takes
            said = note(*given)
            if said is None:
                return method(*given, **named)
            if before:
                self(before)
            result = method(*given, **named)
            self(after, said)
            return result

        setattr(owner, name, told)


def _noise(randomness: CsprngRandomness, purpose: str, step: int) -> str | None:
    key = hashlib.sha256(randomness._keys["noise"]).hexdigest()  # noqa: SLF001 - to see that no key is used again
    return f"{step} {key}" if purpose == "noise" else None


def _post(_service: Service, _signer: object, _actor: str, kind: str, *_: object) -> str | None:
    return "" if kind == "post" else None


def _left(output: FencedOutput) -> str | None:
    sealed = [value for value, _ in output._sealed]  # noqa: SLF001 - to see what leaves
    return f"{LEFT}{c.digest(c.dump(sealed))}" if sealed else None


def _hooked(hook: Hook) -> None:
    hook.around(FencedOutput, "let_out", "", "left", _left)
    hook.around(StepLog, "begin", "begin", "begun")
    # A stream that is opened is noise that may be used: it is written down at once.
    hook.around(CsprngRandomness, "stream", "noise", "noised", _noise)
    hook.around(CheckpointStore, "save_run", "", "saved")
    hook.around(Service, "submit", "post", "posted", _post)


def _snapshot(requested: dict[str, Any]) -> Snapshot | None:
    clone = requested.get("clone")
    if clone is None:
        return None
    os.chdir(clone["machine"])
    hold = RequestHold(clone["first"], clone["point"])
    return Snapshot(clone["run"], Path(clone["folder"]), Path(requested["trace"]), hold, later=clone["later"])


def _run(requested: dict[str, Any], snapshot: Snapshot | None) -> None:
    kill = requested["kill"]
    take = None if snapshot is None else snapshot.take
    _hooked(Hook(Path(requested["trace"]), (kill[0], kill[1]) if kill else None, requested["gate"], take))
    job = Job.load(Path(requested["job"]))
    with consumer_service(job) as service:
        train_job(job, service, lambda _: None, resume=requested["resume"])


def _ended(requested: dict[str, Any]) -> int:
    """Run one; its exit status, and twice its clone's. Why it failed is written beside its trace."""
    snapshot, status = _snapshot(requested), 0
    try:
        _run(requested, snapshot)
    except Exception as error:
        trace = Path(requested["trace"]) if snapshot is None else snapshot.trace
        trace.with_suffix(".error").write_text(f"{type(error).__name__}: {error}")
        if snapshot is None:
            raise
        status = 1
    return status if snapshot is None else snapshot.status(status)


def main() -> None:
    """One child for each line."""
    torch.set_num_threads(1)
    load_torch()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            status = 1
            try:
                requested = json.loads(line)
                Path(requested["pid"]).write_text(str(os.getpid()))
                status = _ended(requested)
            finally:
                sys.stderr.flush()
                os._exit(status)
        sys.stdout.write(f"{os.waitpid(child, 0)[1]}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
