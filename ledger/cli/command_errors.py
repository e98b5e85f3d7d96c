"""How a command ends on an error: one sentence on standard error and an exit code; a broken pipe is no error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from ledger.domain.exit_codes import ExitCode


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
def book_errors_reported(book: str) -> Iterator[str]:
    """The URL of a book; an error in the block is reported in one sentence, without a password."""
    from sqlalchemy.exc import DatabaseError

    from ledger.book.submitted_command import BookUnusable
    from ledger.store.engine import name_of, url_of
    from ledger.wire.malformed import Malformed

    if "://" not in book and not Path(book).is_file():
        raise failure(f"there is no book at {book}", ExitCode.NOT_FOUND)
    try:
        with broken_pipe_ends():
            yield url_of(book)
    except DatabaseError as error:
        told = str(error.orig).strip().partition("\n")[0] or "the database gave no reason"
        raise failure(f"{name_of(url_of(book))} is not a book: {told}", ExitCode.INVALID) from None
    except BookUnusable as error:
        raise failure(str(error), ExitCode.CONFLICT) from None
    except OSError as error:
        raise failure(
            sentence(error), ExitCode.NOT_FOUND if isinstance(error, FileNotFoundError) else ExitCode.INVALID
        ) from None
    except (Malformed, ValueError) as error:
        raise failure(str(error), ExitCode.INVALID) from None


def sentence(error: OSError) -> str:
    """What the operating system reported, and of which file, without its number."""
    return f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)


def failure(message: str, code: ExitCode) -> typer.Exit:
    """Print a sentence on standard error; raise what is returned to end with the exit code."""
    typer.echo(message, err=True)
    return typer.Exit(code)
