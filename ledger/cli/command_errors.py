"""How a command ends on an error: one sentence on standard error and an exit code; a broken pipe is no error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from ledger.command_line.printable_text import json_text, printable, say
from ledger.domain.exit_codes import ExitCode, describe_error, exit_code_of


@contextmanager
def broken_pipe_ends() -> Iterator[None]:
    """End quietly on a broken pipe, as under ``| head``."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes what is buffered when it ends: that goes nowhere, and raises nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(ExitCode.BROKEN_PIPE) from None


@contextmanager
def errors_reported(*, as_json: bool = False, system: ExitCode = ExitCode.INVALID) -> Iterator[None]:
    """Report an error of the block in one sentence, and end with its exit code.

    Args:
        as_json: an error that a verification found is data, and goes to standard output.
        system: the exit code of an error of the operating system, unless a file is missing.
    """
    from ledger.log.verification_findings import VerificationFailed

    try:
        with broken_pipe_ends():
            yield
    except typer.Exit:
        raise
    except VerificationFailed as error:
        if not as_json:
            raise failure(str(error), ExitCode.VERIFICATION_FAILED) from None
        say(json_text(error.to_json()))
        raise typer.Exit(ExitCode.VERIFICATION_FAILED) from None
    except Exception as error:
        code = exit_code_of(error, system)
        if code is None:
            raise
        raise failure(describe_error(error), code) from None


def failure(message: str, code: ExitCode) -> typer.Exit:
    """Print a sentence on standard error; raise what is returned to end with the exit code."""
    say(printable(message), err=True)
    return typer.Exit(code)
