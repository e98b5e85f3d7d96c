"""Start and end of the trainer's commands: check for PyTorch, read the job, call the service, print the report."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import typer

from client.cli.error_report import ErrorPrinter, errors_reported, print_error
from trainer_adapter.cli.exit_codes import OpeningEnding, TrainEnding

if TYPE_CHECKING:
    from client.service.service import Service
    from ledger.wire.canonical_json import Object
    from trainer_adapter.job.job_spec import Assignment, Job

say: Final = partial(typer.echo, err=True)
LOADING: Final = "Reading the job and loading PyTorch, which takes some seconds."
TRAIN_EXTRA: Final = "is not installed, which this command needs: pip install 'epsilon-ledger[train]'"


def require_pytorch(*, as_json: bool = False, printer: ErrorPrinter = print_error) -> None:
    """End the command with one sentence if the extra `train` is not installed; nothing is imported yet."""
    from importlib.util import find_spec

    from ledger.wire.malformed import Malformed

    def ending(_error: Exception, code: int, _step: str) -> tuple[int, str]:
        return code, "Nothing was recorded: install it and retry."

    with errors_reported(as_json=as_json, ending=ending, printer=printer):
        for library in ("torch", "safetensors"):
            if find_spec(library) is None:
                raise Malformed(library, TRAIN_EXTRA)


def begin(*, as_json: bool, printer: ErrorPrinter = print_error) -> None:
    """Check for PyTorch, and show a person at once that it loads."""
    require_pytorch(as_json=as_json, printer=printer)
    if sys.stderr.isatty():
        say(LOADING)


class _Report(Protocol):
    """The report of a command, for programs and for people."""

    def to_json(self) -> Object: ...

    def in_words(self) -> str: ...


def print_report(report: _Report, *, as_json: bool) -> None:
    """Print the report of a command."""
    typer.echo(json.dumps(report.to_json()) if as_json else report.in_words())


@contextmanager
def charged_job(path: Path, *, as_json: bool) -> Iterator[tuple[Job, Service]]:
    """A job that the block charges, and the service as its consumer calls it; errors of the block are reported."""
    begin(as_json=as_json)
    from trainer_adapter.session.noise_choice import load_job

    with errors_reported(as_json=as_json):
        job = load_job(path)
        with _charging(path, job, as_json=as_json) as service:
            yield job, service


@contextmanager
def charged_assignment(path: Path, *, as_json: bool) -> Iterator[tuple[Assignment, Service]]:
    """As :func:`charged_job`, for a job that trains no model of its own."""
    begin(as_json=as_json)
    from trainer_adapter.session.noise_choice import load_assignment

    with errors_reported(as_json=as_json):
        assignment = load_assignment(path)
        with _charging(path, assignment, as_json=as_json) as service:
            yield assignment, service


@contextmanager
def _charging(path: Path, assignment: Assignment, *, as_json: bool) -> Iterator[Service]:
    from trainer_adapter.session.protocol import consumer_service

    with consumer_service(assignment) as service:
        ending = TrainEnding(service, assignment.id, profile_of(path), resumes=False)
        with errors_reported(as_json=as_json, id=assignment.id, ending=ending):
            yield service


@contextmanager
def sealed_job(path: Path, *, as_json: bool) -> Iterator[tuple[Job, Service]]:
    """The job of a sealed model, and the service as its consumer calls it; errors of the block are reported."""
    begin(as_json=as_json)
    from trainer_adapter.session.noise_choice import load_job
    from trainer_adapter.session.protocol import consumer_service

    with errors_reported(as_json=as_json):
        job = load_job(path)
        with consumer_service(job) as service, errors_reported(as_json=as_json, ending=OpeningEnding(service)):
            yield job, service


def profile_of(job: Path) -> str:
    """The profile that a job names, as `epsilon charge show` takes it. Raises: Malformed, OSError."""
    from client.profile.profile import read_table

    named = read_table(job, "train", ()).get("profile")
    return "PROFILE" if named is None else shlex.quote(str(job.parent / str(named)))
