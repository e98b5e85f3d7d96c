"""Connections to a book that no service holds: exclusive access, and timeouts for locks and statements."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, event, inspect, text
from sqlalchemy.exc import DatabaseError
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from ledger.files.atomic_file import database_leftovers
from ledger.store.engine import engine_of, is_postgres, lock_log
from ledger.store.sqlite_file.file_lock import FileChangedError, FileLock, LockHeldError, is_locked
from ledger.store.sqlite_file.mounted_filesystem import FilesystemRefusedError
from migrations.connect.book_location import Place
from migrations.connect.errors import Absent, NotDone

_RETRY_S: Final = 0.05
"""The interval at which a held lock is retried."""
_NOT_WRITABLE: Final = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
_LOCK_NOT_AVAILABLE: Final = "55P03"
_OPCODES: Final = 10_000
"""The number of instructions after which SQLite checks a statement's timeout."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Timeouts in seconds: for a lock (0 does not wait), and for one statement and between two (0 has no limit)."""

    lock_s: float = 10.0
    statement_s: float = 0.0
    idle_s: int = 0


@contextmanager
def exclusive_transaction(place: Place, limits: Limits) -> Iterator[Connection]:
    """One writing transaction with exclusive access; committed when the block ends without an error.

    Raises:
        NotDone: if another process writes for longer than ``limits.lock_s``, or the database refuses; if the file is
            new, and one of another database lies beside its name.
    """
    with file_locked(place, limits):
        if place.path is not None and not place.path.exists():
            refuse_leftovers(place)
        with connected(place, writes=True, limits=limits) as connection:
            lock_log(connection)
            yield connection


@contextmanager
def file_locked(place: Place, limits: Limits) -> Iterator[None]:
    """Hold the lock of the one process that writes an SQLite book. Raises: NotDone, Absent."""
    if place.path is None:
        yield
        return
    if not place.path.parent.is_dir():
        raise Absent(f"there is no folder {place.path.parent}")
    retried, over = retry_if_exception_type(LockHeldError), stop_after_delay(limits.lock_s)
    retrying = Retrying(retry=retried, stop=over, wait=wait_fixed(_RETRY_S), reraise=True)
    try:
        lock = retrying(FileLock, place.path)
    except (FileChangedError, FilesystemRefusedError) as error:
        raise NotDone(str(error)) from None
    except LockHeldError:
        raise _lock_error(place) from None
    try:
        yield
    finally:
        lock.release()


def _lock_error(place: Place) -> NotDone:
    return NotDone(f"another process has the book at {place.display_name} open for writing: stop it first")


def refuse_leftovers(place: Place) -> None:
    """Check that no file lies beside the name of a new SQLite book that would be read into it. Raises: NotDone."""
    found = [] if place.path is None else database_leftovers(place.path)
    if found:
        raise NotDone(
            f"{found[0]} is left from another database of this name, and SQLite would read it into the new book: it "
            "may hold the newest entries of a book that lay here. Move it to where that book is now, or delete it if "
            "there is none, then repeat the command"
        )


def is_held(place: Place, connection: Connection) -> bool:
    """Whether another process has the book open now."""
    if place.path is None:
        return bool(connection.execute(_OTHERS).scalar_one())
    return is_locked(place.path)


@contextmanager
def unheld_transaction(place: Place, limits: Limits) -> Iterator[Connection]:
    """As :func:`exclusive_transaction`, of a book that no other process has open. Raises: NotDone.

    On PostgreSQL the lock of the log is held for a batch only: a service without one now would go on in this book.
    """
    with exclusive_transaction(place, limits) as connection:
        if place.path is None and is_held(place, connection):
            raise NotDone(
                f"another process has the database of {place.display_name} open: stop it first, or two books would "
                "spend one budget"
            )
        yield connection


# Of another role's session an owner who is no superuser is not shown the type; a process of the server has no user.
_OTHERS: Final = text(
    "SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND usesysid IS NOT NULL AND coalesce(backend_type, 'client backend') = 'client backend'"
)


def tables_in(place: Place, limits: Limits | None = None) -> frozenset[str]:
    """The tables of a database, none if there is no file; reads only.

    Raises:
        NotDone: if it is not a database, or cannot be reached.
    """
    if place.path is None:
        with connected(place, writes=False, limits=limits) as connection:
            return frozenset(inspect(connection).get_table_names())
    if not place.path.exists():
        return frozenset()
    if not place.path.is_file():
        what = "it is a folder; name the SQLite file in it" if place.path.is_dir() else "it is no file that can be kept"
        raise NotDone(f"there is no book at {place.display_name}: {what}")
    # Asked, and not opened: closing a file ends every lock that SQLite holds on it in this process.
    if not os.access(place.path, os.R_OK, effective_ids=True):
        raise NotDone(f"{place.display_name} cannot be read: {os.strerror(errno.EACCES)}")
    try:
        return _file_tables(place.path, "mode=ro")
    except sqlite3.Error as error:
        log = Path(f"{place.path}-wal")
        where_read_only = getattr(error, "sqlite_errorcode", 0) & 0xFF in _NOT_WRITABLE
        if not where_read_only or (log.exists() and log.stat().st_size):
            raise NotDone(f"there is no book at {place.display_name}: {error}") from None
    # SQLite makes files beside a book even to read it. Where it cannot, and no log lies there, no writer is left.
    try:
        return _file_tables(place.path, "mode=ro&immutable=1")
    except sqlite3.Error as error:
        raise NotDone(f"there is no book at {place.display_name}: {error}") from None


def _file_tables(path: Path, how: str) -> frozenset[str]:
    """The tables of an SQLite file, opened as the query of its URI says. Raises: sqlite3.Error."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)) as file:
        names = file.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        return frozenset(str(name) for (name,) in names)


@contextmanager
def connected(place: Place, *, writes: bool, limits: Limits | None = None) -> Iterator[Connection]:
    """One transaction on a database, committed when the block ends without an error.

    Raises:
        NotDone: if the database refuses or does not exist; nothing was changed.
    """
    engine = engine_of(place.url.render_as_string(hide_password=False), writes=writes)
    try:
        with engine.begin() as connection:
            _limit(connection, limits or Limits())
            yield connection
    except DatabaseError as error:
        if getattr(error.orig, "sqlstate", None) == _LOCK_NOT_AVAILABLE:
            raise _lock_error(place) from None
        message = str(error.orig).strip().partition("\n")[0]
        raise NotDone(f"{place.display_name}: {message}") from None
    finally:
        engine.dispose()


def _limit(connection: Connection, limits: Limits) -> None:
    """Bound every statement of this connection; SQLite has no such setting, so its progress is watched."""
    if is_postgres(connection):
        # A migration or copy idles longer between two statements than a writer may.
        bounds = {
            "idle_in_transaction_session_timeout": limits.idle_s * 1000,
            "lock_timeout": max(1, int(limits.lock_s * 1000)),
            # The server reads 0 as no timeout.
            "statement_timeout": max(1, int(limits.statement_s * 1000)) if limits.statement_s else 0,
        }
        for name, value in bounds.items():
            connection.exec_driver_sql(f"SET LOCAL {name} = {value}")
        return
    if not limits.statement_s:
        return
    ends = float("inf")

    def began(*args: object) -> None:
        nonlocal ends
        del args
        ends = time.monotonic() + limits.statement_s

    driver: Any = connection.connection.driver_connection
    event.listen(connection, "before_cursor_execute", began)
    driver.set_progress_handler(lambda: time.monotonic() > ends, _OPCODES)
