"""A model that never leaves, and answers: an ensemble in a clean room, asked by its consumer, each answer charged.

Three processes, as three parties would run them: ``epsilon ensemble`` trains and seals, ``epsilon answer`` opens what
was sealed in a room of its own, and ``epsilon ask`` asks it over the channel of the contract's consumer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from api.demo.heartbeat import heartbeat
from api.demo.trainer import Address, Task, TrainerFailed, rendered

TEACHERS: Final = 50
QUESTIONS: Final = 16
NOISE: Final = "10"
"""In votes, of 50."""
_SERVES: Final = "the room answers at "
_ENVIRONMENT: Final = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of it.

    Attributes:
        sealed: the report of the process that trained. room: that of the process that answered.
        classes: the answer to each question, in order.
        left: the names of the files that the run has left, all of them sealed or without an answer.
    """

    sealed: dict[str, Any]
    room: dict[str, Any]
    classes: list[int]
    left: list[str]


def write_ensemble_job(folder: Path, address: Address, task: Task) -> Path:
    """The job's file."""
    path = folder / "jobs" / f"{task.id}.toml"
    text = rendered(
        "ensemble.toml",
        actor=task.bank.did,
        contract=task.contract,
        data=task.data,
        id=task.id,
        issuer=address.issuer,
        log=address.log.vkey,
        noise=NOISE,
        partition=task.partition,
        questions=QUESTIONS,
        service=address.service,
        slug=task.bank.slug,
        teachers=TEACHERS,
    )
    path.write_text(text, encoding="utf-8")
    return path


def ask_sealed(job: Path, questions: Path, console: Console) -> Answered:
    """Train and seal, open, ask, and end the room once all was asked. Raises: TrainerFailed."""
    with heartbeat(console, f"training {TEACHERS} teachers and sealing them, in a clean room of its own"):
        sealed = json.loads(_run("ensemble", str(job), "--json"))
    with _room(job, console) as (room, address):
        with heartbeat(console, f"asking {QUESTIONS} questions at {address}"):
            lines = _run("ask", str(job), str(questions), "--room", address).splitlines()
        with heartbeat(console, "waiting until the room has ended by itself"):
            reported, error = room.communicate()
    if room.returncode:
        raise TrainerFailed(f"the room ended with exit code {room.returncode}: {error.strip()}")
    classes = [int(json.loads(line)["answer"]["class"]) for line in lines]
    run = job.parent.parent / "runs" / job.stem
    return Answered(sealed, json.loads(reported), classes, sorted(path.name for path in run.iterdir()))


def _run(*words: str) -> str:
    command = [sys.executable, "-m", "epsilon_ledger", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_ENVIRONMENT)  # noqa: S603 - ours
    if done.returncode:
        raise TrainerFailed(done.stderr.strip())
    return done.stdout


@contextmanager
def _room(job: Path, console: Console) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process that answers while the block runs, and where."""
    command = [sys.executable, "-m", "epsilon_ledger", "answer", str(job), "--json"]
    with subprocess.Popen(  # noqa: S603 - our own command
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_ENVIRONMENT
    ) as process:
        assert process.stderr is not None
        try:
            with heartbeat(console, "opening them in an attested room that answers"):
                said = next((line for line in process.stderr if _SERVES in line), "")
            if not said:
                raise TrainerFailed(f"the room ended with exit code {process.wait()}")
            yield process, said.split(_SERVES)[1].split(",", maxsplit=1)[0]
        finally:
            process.terminate()
