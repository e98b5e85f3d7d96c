"""What must be true before a book is opened, and the lock of the one process that writes an SQLite book."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from psycopg.errors import UndefinedTable
from sqlalchemy import Connection, Engine, make_url
from sqlalchemy.exc import DatabaseError, OperationalError

from ledger.book.checkpoint_file import CheckpointFile
from ledger.book.pricing.pricing_turns import AT_ONCE
from ledger.book.state.snapshot_file import SnapshotFile
from ledger.book.wall_clock import WallClock
from ledger.book.writer_state import WriterState
from ledger.crypto.ed25519 import UnknownLibrary, checked_libsodium
from ledger.log.verification_findings import VerificationFailed
from ledger.store.append_only_triggers import altered_trigger, foreign_object
from ledger.store.cosignatures import newest_cosigned
from ledger.store.database_grants import rights_problem
from ledger.store.database_state import check_documents, check_open_rows
from ledger.store.engine import engine_of, is_postgres, name_of, url_of
from ledger.store.postgres.server_settings import encoding_problem, volatile_setting
from ledger.store.schema_revision import BookUnusable, check_schema
from ledger.store.snapshot import Log, Snapshot
from ledger.store.sqlite_file.file_lock import FileChangedError, FileLock, LockHeldError
from ledger.store.sqlite_file.mounted_filesystem import FilesystemRefusedError
from ledger.store.successor_book import check_unmoved, successor_of
from ledger.verifier import LogKey
from ledger.wire.malformed import Malformed

WRITERS_MAX: Final = 5
"""Connections that write: the batch that is decided, the one that is committed, a document, and one to spare."""
OWN_READERS_MAX: Final = AT_ONCE + 4
"""Connections that the writer reads by: itself, each worker that prices, the kept checkpoint and the comparison."""
READERS_MAX: Final = 28
"""Connections of all who read: the places of a service, as many as its slow requests need, and some for short reads."""
_LOG: Final = logging.getLogger("ledger.book")
_SNAPSHOT_ERRORS: Final = (
    ValueError,
    LookupError,
    AssertionError,
    ArithmeticError,
    TypeError,
    AttributeError,
    BookUnusable,
)
"""What reading a state that is not this log's may raise; a lost database is none of them.

That the log's key was replaced is one: the file may say so falsely, and the whole log says it again if it is true.
"""


def engines_of(url: str) -> tuple[Engine, Engine, Engine]:
    """What a book is written by, what its writer reads by, and what everyone else reads by.

    However many read, the writer finds a connection of its own: under the lock of the log it waits for no reader.
    """
    writes = engine_of(url, writes=True, connections=WRITERS_MAX)
    own, readers = (engine_of(url, writes=False, connections=most) for most in (OWN_READERS_MAX, READERS_MAX))
    return writes, own, readers


def usable_state(
    engine: Engine, key: LogKey, kept: CheckpointFile | None, snapshot: Path | None, *, volatile: bool
) -> WriterState:
    """Check that a book is complete, append-only, durable and of this log; the writer's state after its last entry.

    Args:
        key: the log's.
        kept: the file with the checkpoint that the book must extend.
        snapshot: the file with a state of this log, by which the book is opened if it can be believed.
        volatile: a server whose commits do not wait for the disk is accepted.

    Raises:
        BookUnusable: unless the book has this program's schema, its triggers and no others, rights that cannot change
            what is recorded, a server whose commits are durable, this log's checkpoint, and extends the kept one; and
            if this process verifies signatures by libraries that it was not tested with.
    """
    try:
        checked_libsodium()
    except UnknownLibrary as error:
        raise BookUnusable(str(error)) from None
    try:
        with engine.begin() as connection:
            if (wrong := encoding_problem(connection)) is not None:
                raise BookUnusable(wrong)
            check_schema(connection)
            _check_guarded(connection)
            _check_not_moved(connection)
            setting = None if volatile else volatile_setting(connection)
            if setting is not None:
                raise BookUnusable(f"the server has {setting} off, and may lose what it committed: turn it on")
            try:
                state = _read_state(connection, key, None if snapshot is None else SnapshotFile(snapshot, key))
                found = Snapshot(connection)
                if kept is not None:
                    kept.check(found, state.root)
                check_open_rows(found, state.facts.in_memory_parts())
                check_documents(found, state.facts.in_memory_parts())
            except (Malformed, KeyError, VerificationFailed) as error:
                raise BookUnusable(f"the book is not this log's, or was changed: {error}") from None
    except OperationalError as error:
        if engine.dialect.name == "sqlite":
            raise _no_book(error) from None
        raise BookUnusable(f"the database cannot be reached: {str(error.orig).strip()}") from None
    except DatabaseError as error:
        if getattr(error.orig, "sqlstate", UndefinedTable.sqlstate) != UndefinedTable.sqlstate:
            raise BookUnusable(f"the book cannot be read: {_reported(error)}") from None
        raise _no_book(error) from None
    return state


def _read_state(connection: Connection, key: LogKey, snapshots: SnapshotFile | None) -> WriterState:
    """The state after the last entry: by the snapshot and the entries since, or by the whole log. Raises: Malformed."""
    state = WriterState(key, snapshots)
    if snapshots is not None:
        try:
            found = snapshots.read()
            if found is not None:
                state.resume(connection, found)
                snapshots.believed(found)
                _LOG.info("opened by the snapshot of %d entries, and %d since", found.size, state.size - found.size)
                return state
        except _SNAPSHOT_ERRORS as error:
            _LOG.warning("the snapshot of the state is not believed, and the whole log is read: %s", error)
            state.statements.close()
            state, snapshots = WriterState(key, snapshots), None
    state.catch_up(connection)
    if snapshots is not None and snapshots.is_expected(state.size):
        _LOG.info("there is no snapshot of the state: the whole log was read")
    return state


def _no_book(error: DatabaseError) -> BookUnusable:
    return BookUnusable(f"there is no book here ({_reported(error)}): run 'epsilon db upgrade' to make one")


def _reported(error: DatabaseError) -> str:
    return str(error.orig).partition("\n")[0]


def _check_guarded(connection: Connection) -> None:
    missing = altered_trigger(connection)
    if missing is not None:
        raise BookUnusable(f"the book lacks its trigger {missing}: what it holds may have been changed")
    foreign = foreign_object(connection)
    if foreign is not None:
        raise BookUnusable(f"the book has {foreign}, which its migrations did not make: drop it, then verify the book")
    wrong = rights_problem(connection)
    if wrong is not None:
        raise BookUnusable(f"{wrong}: open the book as a role that is a member of epsilon_writer and nothing more")


def _check_not_moved(connection: Connection) -> None:
    successor = successor_of(connection)
    check_unmoved(None if successor is None else successor.book)


def recheck(connection: Connection, lock: FileLock | None) -> None:
    """Check before a batch that the book is still the one that was opened, under the schema of this program.

    Raises:
        BookUnusable: if another process has migrated or moved it meanwhile.
        FileChangedError: if its path leads to another file now, or another process has begun to write it.
    """
    if is_postgres(connection):
        check_schema(connection)
        _check_not_moved(connection)
    if lock is not None:
        lock.check()


def begin_epoch(writes: Engine, lock: FileLock | None) -> None:
    """Inform processes on other hosts that this one writes the file. Raises: BookUnusable, if it cannot be written."""
    if lock is None:
        return
    try:
        lock.begin_epoch(writes)
    except (DatabaseError, sqlite3.Error) as error:
        reported = getattr(error, "orig", None) or error
        raise BookUnusable(f"the book at {name_of(writes.url)} cannot be written: {reported}") from None


def begin_clock(reads: Engine, clock: WallClock, last: int, show_first: Callable[[], Iterable[int]]) -> None:
    """Hold the clock to the newest entry, to the newest cosignature and to the witnesses that see the book first.

    Args:
        last: time of the newest entry (ms).
        show_first: shows the book to witnesses; their times (Unix ms).
    """
    with reads.begin() as connection:
        clock.begin(last, newest_cosigned(Log(connection)))
    for time in show_first():
        clock.witnessed(time)


def take_lock(url: str) -> FileLock | None:
    """Lock an SQLite book for its one writing process; the kernel releases the lock when the process ends.

    On PostgreSQL several processes may have a book open, and take turns by :func:`ledger.store.engine.lock_log`.

    Raises:
        BookUnusable: if there is no book, its folder is not writable, its file has a second name or lies on a
            filesystem that may lose commits, or another process holds the lock.
    """
    made = make_url(url_of(url))
    if made.drivername != "sqlite" or not made.database or made.database == ":memory:":
        return None
    path = Path(made.database)
    if not path.exists():
        raise BookUnusable(f"there is no book at {path}: run 'epsilon db upgrade' to make one")
    try:
        return FileLock(path)
    except LockHeldError:
        raise BookUnusable(f"another process has the book at {name_of(url)} open for writing: stop it first") from None
    except (FileChangedError, FilesystemRefusedError) as error:
        raise BookUnusable(str(error)) from None
    except OSError as error:
        raise BookUnusable(
            f"the book at {name_of(url)} cannot be locked for writing: {error.strerror or error}"
        ) from None
