"""Database engines of a book, with the settings that its durability depends on.

SQLite runs in WAL mode with full synchronisation, and every writing transaction begins at once
(``BEGIN IMMEDIATE``): the driver's own deferred transactions let two writers both read the same headroom.

PostgreSQL runs at READ COMMITTED behind one advisory lock: a writer holds it from before the first read to the commit,
so no two batches overlap, in any process. Nothing depends on SERIALIZABLE. Readers use one
REPEATABLE READ snapshot (snapshot isolation). A process that stalls inside a batch loses its session, and with it the
lock, before the others time out; when it resumes, its transaction is gone. The server ends a session that is idle in a
transaction; it counts none as idle whose last message came in a pipeline. So what is sent in one is made ready before,
and PostgreSQL 17 and later also limit how long a transaction may hold the lock.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, TypeVar, overload

import psycopg
from sqlalchemy import URL, Connection, Dialect, Engine, Executable, Result, create_engine, event, make_url, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.sql.selectable import TypedReturnsRows

from ledger.files.atomic_file import PRIVATE
from ledger.files.named_file import followed
from ledger.wire.malformed import Malformed

_Any: TypeAlias = Any
"""SQLAlchemy's own types of statements and parameters."""
T = TypeVar("T", bound=tuple[Any, ...])
WRITE_LOCK: Final = 0x65_70_73_69_6C_6F_6E
"""The advisory lock of a PostgreSQL book, ``epsilon`` in ASCII; such locks are each database's own."""
STALL_S: Final = 30
"""How long a writing session may sit idle inside a transaction before PostgreSQL ends it."""
HOLD_S: Final = 45
"""How long one transaction may hold the lock of the log, whatever it does: less than others wait for it."""
LOCK_S: Final = 60
WRITE_S: Final = 120
READ_S: Final = 600
CONNECT_S: Final = 10
"""How long a connection is waited for: that the server takes it, and that another user of the pool gives it back."""
CONNECTIONS_MAX: Final = 15
"""Connections of one engine, where its user does not say how many it needs."""

_KEPT: Final = 5
"""Connections of a pool that stay open."""
_POSTGRES: Final = "postgresql+psycopg"
_SQLITE: Final = ("synchronous=FULL", "busy_timeout=5000", "recursive_triggers=ON")
_NOT_WRITABLE: Final = (8, 14)
"""Result codes of SQLite: read-only, cannot open."""
_LINK: Final = {
    "connect_timeout": CONNECT_S,
    # From the first statement on: without one of its own a server decides what characters a client understands.
    "client_encoding": "UTF8",
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
WRITING: Final = {
    "default_transaction_read_only": "off",
    "idle_in_transaction_session_timeout": f"{STALL_S}s",
    "lock_timeout": f"{LOCK_S}s",
    "statement_timeout": f"{WRITE_S}s",
}
_READING: Final = {
    "default_transaction_read_only": "on",
    "idle_in_transaction_session_timeout": f"{READ_S}s",
    "lock_timeout": f"{LOCK_S}s",
    "statement_timeout": f"{READ_S}s",
}
# What an operator or the writer's own role has set for its sessions changes no row and hides no warning. Names resolve
# to the book's own tables and never to a temporary table of the same name.
_EVERY: Final = {
    "search_path": "public, pg_temp",
    "timezone": "UTC",
    "client_encoding": "UTF8",
    "array_nulls": "on",
    "client_min_messages": "notice",
}
_DURABLE: Final = (
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)
"""A commit waits for the disk. Where it waits for a standby too, it goes on doing so."""


def url_of(book: str | Path) -> str:
    """The URL of a book named by a person: a PostgreSQL URL, an SQLAlchemy URL, or the path of an SQLite file.

    A symbolic link to the file is followed here, once: the book's logs and its lock lie beside the file.

    Raises:
        Malformed: if it looks like a URL and is none, or is one of another database.
    """
    if isinstance(book, Path) or "://" not in book:
        # Built and not pasted: '?', '#' and '%' are characters of a path.
        return followed_url(URL.create("sqlite", database=str(book))).render_as_string(hide_password=False)
    try:
        url = make_url(book)
    except (ArgumentError, ValueError):
        raise Malformed("book", "is not a URL of a database") from None
    name = url.get_backend_name()
    if name not in {"postgres", "postgresql", "sqlite"}:
        raise Malformed("book", f"must be an SQLite file or a PostgreSQL database, not {name}")
    driver = "sqlite" if name == "sqlite" else _POSTGRES
    return followed_url(url.set(drivername=driver)).render_as_string(hide_password=False)


def followed_url(url: URL) -> URL:
    """The URL of the file that an SQLite URL leads to; the same URL, unless that names a symbolic link."""
    named = Path(url.database or "")
    file = followed(named) if url.get_backend_name() == "sqlite" else named
    return url if file == named else url.set(database=str(file))


def sqlite_file(url: str) -> Path | None:
    """The file of an SQLite book; None for another database."""
    made = make_url(url)
    return Path(made.database) if made.drivername == "sqlite" and made.database else None


def name_of(url: str | URL) -> str:
    """The name of a book in messages: its path, or its URL without the password."""
    made = make_url(url)
    return str(made.database) if made.get_backend_name() == "sqlite" else made.render_as_string(hide_password=True)


def engine_of(url: str, *, writes: bool, connections: int = CONNECTIONS_MAX) -> Engine:
    """An engine with the settings that durability rests on, and a pool of so many connections at most."""
    made = make_url(url_of(url))
    make = _sqlite_engine if made.drivername == "sqlite" else _postgres_engine
    kept = min(_KEPT, connections)
    pool = {"pool_size": kept, "max_overflow": connections - kept, "pool_timeout": CONNECT_S}
    return make(made, {} if made.database in {None, "", ":memory:"} else pool, writes=writes)


def _sqlite_engine(url: URL, pool: dict[str, Any], *, writes: bool) -> Engine:
    engine = create_engine(url, **pool)
    pragmas = (*_SQLITE, "journal_mode=WAL") if writes else (*_SQLITE, "query_only=ON")
    connection_of = _write_connection if writes else _read_connection

    @event.listens_for(engine, "do_connect")
    def _open(dialect: Dialect, record: object, arguments: list[str], settings: dict[str, Any]) -> DBAPIConnection:
        del record
        return connection_of(dialect, arguments[0], settings)

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, record: object) -> None:  # noqa: ANN401 - the driver's own type
        del record
        connection.isolation_level = None
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        run_plainly(connection, "BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _write_connection(dialect: Dialect, path: str, settings: dict[str, Any]) -> DBAPIConnection:
    """A connection that writes, to a file that only its owner may read: it holds all parties' contracts and runs.

    SQLite would make it readable for all, as the umask allows. Its log and index beside it get the mode that it has.
    """
    if path not in {"", ":memory:"}:
        # A folder that is not there, or not writable, is reported by SQLite.
        with suppress(OSError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))
    return dialect.connect(path, **settings)


def _read_connection(dialect: Dialect, path: str, settings: dict[str, Any]) -> DBAPIConnection:
    """A connection that reads; of a file on read-only media too, if its last writer has closed it.

    In WAL mode SQLite makes two files beside the book even to read it. Where it cannot, and no log of a writer lies
    there, nothing can change the file, and it is opened as immutable.
    """
    connection = dialect.connect(path, **settings)
    try:
        connection.cursor().execute("SELECT 1 FROM sqlite_master LIMIT 1")
    except sqlite3.OperationalError as error:
        log = Path(f"{path}-wal")
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _NOT_WRITABLE or (log.exists() and log.stat().st_size):
            return connection
        connection.close()
        connection = dialect.connect(f"{Path(path).absolute().as_uri()}?mode=ro&immutable=1", **settings, uri=True)
    except sqlite3.DatabaseError:
        # What reads next reports it.
        return connection
    return connection


def _postgres_engine(url: URL, pool: dict[str, Any], *, writes: bool) -> Engine:
    engine = create_engine(
        url,
        **pool,
        connect_args={name: value for name, value in _LINK.items() if name not in url.query},
        isolation_level="READ COMMITTED" if writes else "REPEATABLE READ",
        # A connection that died while idle is replaced; nothing was sent on it.
        pool_pre_ping=True,
    )
    settings = _EVERY | (WRITING if writes else _READING)

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, record: object) -> None:  # noqa: ANN401 - the driver's own type
        del record
        connection.autocommit = True
        for name, value in settings.items():
            connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        if writes:
            connection.execute(_DURABLE)
        connection.autocommit = False

    return engine


class Executor(Protocol):
    """What runs statements: a connection inside its transaction, or :class:`ShortReads`."""

    @property
    def dialect(self) -> Dialect:
        """Of the database."""

    @overload
    def execute(
        self, statement: TypedReturnsRows[T], parameters: _Any = None, *, execution_options: _Any = None
    ) -> Result[T]: ...

    @overload
    def execute(
        self, statement: Executable, parameters: _Any = None, *, execution_options: _Any = None
    ) -> Result[Any]: ...

    def execute(self, statement: _Any, parameters: _Any = None, *, execution_options: _Any = None) -> Result[_Any]:
        """Run one statement, or the same one for each set of parameters."""


class ShortReads:
    """Runs each query on a snapshot of its own and holds no connection in between."""

    def __init__(self, engine: Engine) -> None:
        """Read through ``engine``."""
        self._engine = engine

    @property
    def dialect(self) -> Dialect:
        """Of the database."""
        return self._engine.dialect

    def execute(self, statement: _Any, parameters: _Any = None, *, execution_options: _Any = None) -> Result[_Any]:
        """Run one query; every row of the result is in memory."""
        with self._engine.begin() as connection:
            return connection.execute(statement, parameters, execution_options=execution_options).freeze()()


def is_postgres(connection: Executor) -> bool:
    """Whether the database is PostgreSQL."""
    return connection.dialect.name == "postgresql"


def lock_log(connection: Connection) -> None:
    """Wait until no other process appends entries; the end of the transaction releases the lock.

    SQLite has one writing process, which holds a lock on a file beside the book, and begins at once.
    """
    if is_postgres(connection):
        connection.execute(_LOCK, {"key": WRITE_LOCK})


def run_plainly(connection: Connection, statement: str, values: Sequence[_Any] = ()) -> list[_Any]:
    """Run a statement of the driver's own dialect without SQLAlchemy, which takes longer than SQLite; its rows.

    Raises:
        DBAPIError: as SQLAlchemy raises it.
    """
    dialect = connection.dialect
    assert dialect.dbapi is not None
    cursor = connection.connection.cursor()
    try:
        announce(connection, cursor, statement, values)
        cursor.execute(statement, values)
        return [*cursor.fetchall()] if cursor.description else []
    except dialect.dbapi.Error as error:
        raise DBAPIError.instance(statement, None, error, dialect.dbapi.Error, dialect=dialect) from error
    finally:
        cursor.close()


def announce(connection: Connection, cursor: object, statement: str, values: Sequence[_Any] = ()) -> None:
    """Tell those who listen which statement is sent now without SQLAlchemy, as it tells them of its own."""
    for listener in connection.engine.dispatch.before_cursor_execute:
        listener(connection, cursor, statement, values, None, False)  # noqa: FBT003 - as SQLAlchemy calls it


def limits_transactions(connection: Connection) -> bool:
    """Whether the server can limit how long a transaction goes on (PostgreSQL 17)."""
    driver = connection.connection.driver_connection
    return isinstance(driver, psycopg.Connection) and driver.info.server_version >= _LIMITS_SINCE


_LIMITS_SINCE: Final = 170_000
_LOCK: Final = text("SELECT pg_advisory_xact_lock(:key)")
