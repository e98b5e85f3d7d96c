"""Runs jobs on several ranks, each a process of its own, and kills one of them at a moment.

    python tests/trainer_adapter/devices/rank_worker.py

reads one JSON object a line: ``jobs`` (the path of each rank's job: one for all, unless they are to disagree),
``folder`` (where ranks meet, write down each use of noise, and why they failed), ``kill`` (a rank, the purpose of a
stream of randomness, and the step at which it is opened; or null) and ``resume``. Each is answered with the wait
statuses of the ranks, in order, as JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from torch._C._distributed_c10d import FileStore

from tests.trainer_adapter.loaded_torch import load_torch
from trainer_adapter.cli.train import follow_job, train_job
from trainer_adapter.devices.rank_group import RankGroup
from trainer_adapter.dpsgd.csprng import CsprngRandomness, Purpose, Stream
from trainer_adapter.job.job_spec import Job
from trainer_adapter.session.protocol import consumer_service


def _watch(rank: int, folder: Path, kill: list[Any] | None) -> None:
    """Write down each use of noise by rank 0, and end this process at its moment."""
    opened = CsprngRandomness.stream
    trace = os.open(folder / "noise", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def stream(self: CsprngRandomness, purpose: Purpose, step: int) -> Stream:
        if purpose == "noise" and not rank:
            key = hashlib.sha256(self._keys["noise"]).hexdigest()
            os.write(trace, f"{step} {key}\n".encode())
        if kill is not None and [rank, purpose, step] == kill:
            os.kill(os.getpid(), signal.SIGKILL)
        return opened(self, purpose, step)

    CsprngRandomness.stream = stream  # type: ignore[method-assign] # this process dies by it


def _run(rank: int, wanted: dict[str, Any]) -> None:
    folder, size = Path(wanted["folder"]), len(wanted["jobs"])
    _watch(rank, folder, wanted["kill"])
    try:
        ranks = RankGroup(rank, size, FileStore(str(folder / "store"), size), 120.0, 60.0)
        job = Job.load(Path(wanted["jobs"][rank]))
        if rank:
            follow_job(job, ranks)
            return
        with consumer_service(job) as service:
            train_job(job, service, lambda _: None, resume=wanted["resume"], ranks=ranks)
    except Exception as error:
        (folder / f"{rank}.error").write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
        raise


def _child(rank: int, wanted: dict[str, Any]) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        _run(rank, wanted)
        status = 0
    finally:
        os._exit(status)


def main() -> None:
    """The ranks of each line, one line after the other."""
    torch.set_num_threads(1)
    load_torch()
    for line in sys.stdin:
        wanted = json.loads(line)
        children = [_child(rank, wanted) for rank in range(len(wanted["jobs"]))]
        sys.stdout.write(json.dumps([os.waitpid(child, 0)[1] for child in children]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
