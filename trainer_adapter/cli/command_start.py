"""What every command of the trainer begins with: whether PyTorch is there, and what a person sees while it loads."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Final

import typer

from client.cli.error_report import ErrorPrinter, errors_reported, print_error

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


def say_that_it_loads() -> None:
    """What a person sees from the first second on."""
    if sys.stderr.isatty():
        say(LOADING)


def profile_of(job: Path) -> str:
    """The profile that a job names, as `epsilon charge show` takes it. Raises: Malformed, OSError."""
    from client.profile.profile import read_table

    named = read_table(job, "train", ()).get("profile")
    return "PROFILE" if named is None else shlex.quote(str(job.parent / str(named)))
