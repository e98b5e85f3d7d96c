"""Opens a book for a command, in its current or a past state; every error is one sentence and an exit code."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ledger.cli.command_errors import errors_reported, failure
from ledger.domain.exit_codes import ExitCode

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from ledger.book.past_snapshot import PastSnapshot
    from ledger.store.snapshot import Log, Snapshot

BookName = Annotated[str, typer.Argument(metavar="BOOK", help="The book: an SQLite file, or a database's URL.")]
LogFile = Annotated[
    Path | None, typer.Option("--log", help="The file with the log's verifier key; default: log.vkey beside the book.")
]
AsOf = Annotated[
    int | None,
    typer.Option("--as-of", metavar="SIZE", min=0, help="Use the first SIZE entries of the log only; default: all."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


_SHORTAGES: Final = (sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL)
"""Result codes of SQLite that state nothing about the book."""


@contextmanager
def book_url(book: str, *, as_json: bool = False) -> Iterator[str]:
    """The URL of a book; an error in the block is reported in one sentence, without a password."""
    from sqlalchemy.exc import DatabaseError

    from ledger.store.engine import name_of, url_of

    with errors_reported(as_json=as_json):
        if "://" not in book and not Path(book).is_file():
            raise failure(f"there is no book at {book}: name its SQLite file, or a database's URL", ExitCode.NOT_FOUND)
        if "://" not in book and not os.access(book, os.R_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), book)
        try:
            yield url_of(book)
        except DatabaseError as error:
            reported = str(error.orig).strip().partition("\n")[0] or "the database gave no reason"
            if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in _SHORTAGES:
                detail = f"{reported}: look at the disk's space and at the limits of this process"
                raise failure(f"{name_of(url_of(book))} cannot be read here: {detail}", ExitCode.RETRY) from None
            raise failure(f"{name_of(url_of(book))} is not a book: {reported}", ExitCode.INVALID) from None


@contextmanager
def book_engine(book: str, *, writes: bool = False) -> Iterator[Engine]:
    """A book's engine, for the block."""
    from ledger.store.engine import engine_of

    with book_url(book) as url:
        engine = engine_of(url, writes=writes)
        try:
            yield engine
        finally:
            engine.dispose()


@contextmanager
def book_snapshot(
    book: str, as_of: int | None = None, damage: tuple[type[Exception], ...] = ()
) -> Iterator[Snapshot | PastSnapshot]:
    """A book's current state, or its state after the first ``as_of`` entries.

    Args:
        damage: errors in the block that show that a row cannot be read: verification finds which.
    """
    from ledger.book.past_snapshot import PastSnapshot
    from ledger.store.engine import name_of
    from ledger.store.snapshot import Snapshot

    with book_engine(book) as engine:
        try:
            with engine.begin() as connection:
                now = Snapshot(connection)
                require_size(now, as_of)
                # No proof is made from it, so the log's key is not needed.
                yield now if as_of is None else PastSnapshot(connection, as_of, lambda _, root: root.hex())
        except damage as error:
            sentence = f"{name_of(engine.url)} cannot be read ({error}): run 'epsilon verify' to find the error"
            raise failure(sentence, ExitCode.VERIFICATION_FAILED) from None


def require_size(log: Log, as_of: int | None) -> None:
    """Exit, unless the log has ``as_of`` entries."""
    if as_of is not None and as_of > log.size:
        raise failure(f"the log has {log.size} entries, fewer than {as_of}", ExitCode.NOT_FOUND)
