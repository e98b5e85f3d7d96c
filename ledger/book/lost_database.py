"""A database that does not answer, as callers of a book see it: the book is busy, whichever driver said so."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, PendingRollbackError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from ledger.book.submitted_command import BookBusy, BookStopped

_UNDEFINED: Final = ("42P01", "42703")
"""PostgreSQL's codes of a table and of a column that is not there."""
_LOG: Final = logging.getLogger("ledger.book")


@contextmanager
def busy_where_lost() -> Iterator[None]:
    """Report a lost or overloaded database as a busy book; the driver's own words go to the operator's log.

    Nothing in the block may have an outcome that a caller must know: it reads, or what it writes may be written again.

    Raises:
        BookBusy: if the database cannot be reached, ended the session, or has no connection free.
        BookStopped: if it has lost a table or a column since the book was opened.
    """
    try:
        yield
    except (DBAPIError, PendingRollbackError, PoolTimeout) as error:
        if isinstance(error, DBAPIError) and not _is_lost(error):
            if getattr(error.orig, "sqlstate", None) in _UNDEFINED:
                raise BookStopped("another process has changed the book's schema: open the book again") from error
            raise
        reported = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        _LOG.warning("the database does not answer: %s", reported)
        raise BookBusy("the database does not answer now: try again, with the same ids") from error


def _is_lost(error: DBAPIError) -> bool:
    # SQLite gives this code, and the same class, for what no retry mends: a table that is not there.
    if getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR:
        return False
    return error.connection_invalidated or isinstance(error, InterfaceError | OperationalError)
