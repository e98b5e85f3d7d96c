"""How a command on a book ends: a fault is one sentence and an exit code, and a reader who has left is no fault."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import typer

MALFORMED: Final = 2
NOT_FOUND: Final = 4
CONFLICT: Final = 5
READER_LEFT: Final = 141
"""What a shell says of programs that the signal of a closed pipe ends (128 and SIGPIPE's 13), as of most others."""


@contextmanager
def reader_may_leave() -> Iterator[None]:
    """End quietly where whoever read the output has left, as ``| head`` does."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still held back goes nowhere, and the interpreter, which writes it as it ends, does not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(READER_LEFT) from None


@contextmanager
def faults_told(book: str) -> Iterator[str]:
    """The URL of a book; a fault on the way is one sentence, and shows no password."""
    from sqlalchemy.exc import DatabaseError

    from ledger.book.submission import BookUnusable
    from ledger.store.engine import name_of, url_of
    from ledger.wire.malformed import Malformed

    if "://" not in book and not Path(book).is_file():
        raise failure(f"there is no book at {book}", NOT_FOUND)
    try:
        with reader_may_leave():
            yield url_of(book)
    except DatabaseError as fault:
        told = str(fault.orig).strip().partition("\n")[0] or "the database gave no reason"
        raise failure(f"{name_of(url_of(book))} is not a book: {told}", MALFORMED) from None
    except BookUnusable as fault:
        raise failure(str(fault), CONFLICT) from None
    except OSError as fault:
        raise failure(sentence(fault), NOT_FOUND if isinstance(fault, FileNotFoundError) else MALFORMED) from None
    except (Malformed, ValueError) as fault:
        raise failure(str(fault), MALFORMED) from None


def sentence(fault: OSError) -> str:
    """What the system refused, and of which file, without its number."""
    return f"{fault.filename}: {fault.strerror}" if fault.filename and fault.strerror else str(fault)


def failure(told: str, code: int) -> typer.Exit:
    """To raise, once the sentence is told."""
    typer.echo(told, err=True)
    return typer.Exit(code)
