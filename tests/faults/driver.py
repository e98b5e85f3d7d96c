"""The book's own code over apsw, which alone lets a VFS be written in Python: URLs ``sqlite:///PATH?plugin=faulty&vfs=NAME``.

A DB-API module as thin as the book needs it, and a plugin of SQLAlchemy that puts it in the place of the standard
library's. Nothing of the book knows: the URL says it. ``&synchronous=OFF`` breaks the book on
purpose, for the tests to notice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

import apsw
from sqlalchemy import URL, CreateEnginePlugin
from sqlalchemy.dialects import plugins

NAME: Final = "faulty"


@contextmanager
def _translated() -> Iterator[None]:
    """The standard library's errors in place of apsw's."""
    try:
        yield
    except apsw.ConstraintError as fault:
        raise sqlite3.IntegrityError(str(fault)) from fault
    except (apsw.BusyError, apsw.CantOpenError, apsw.FullError, apsw.IOError, apsw.ReadOnlyError) as fault:
        raise sqlite3.OperationalError(str(fault)) from fault
    except apsw.Error as fault:
        raise sqlite3.DatabaseError(str(fault)) from fault


class Cursor:
    """Rows are fetched at once."""

    arraysize = 1

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._cursor.exec_trace = self._describe
        self._rows: list[tuple[Any, ...]] = []
        self.description: Any = None
        self.rowcount = -1

    def _describe(self, cursor: apsw.Cursor, sql: str, bindings: object) -> bool:
        # The one moment at which apsw tells the columns of a result without rows.
        del sql, bindings
        columns = cursor.get_description()
        self.description = tuple((*column, None, None, None, None, None)[:7] for column in columns) or None
        return True

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Cursor:
        """One statement."""
        return self._run(self._cursor.execute, statement, values)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> Cursor:
        """One statement for each row of values."""
        return self._run(self._cursor.executemany, statement, rows)

    def _run(self, run: Callable[..., Any], statement: str, values: Any) -> Cursor:  # noqa: ANN401
        before = self._connection.total_changes()
        self.description = None
        with _translated():
            self._rows = list(run(statement, values))
        self.rowcount = self._connection.total_changes() - before
        return self

    def fetchone(self) -> Any:  # noqa: ANN401 - a row or None
        """The next row."""
        return self._rows.pop(0) if self._rows else None

    def fetchmany(self, size: int = 1) -> list[tuple[Any, ...]]:
        """The next rows."""
        taken, self._rows = self._rows[:size], self._rows[size:]
        return taken

    def fetchall(self) -> list[tuple[Any, ...]]:
        """The rows that are left."""
        taken, self._rows = self._rows, []
        return taken

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    @property
    def lastrowid(self) -> int:
        """The key of the newest row."""
        return self._connection.last_insert_rowid()

    def close(self) -> None:
        """Let go."""
        self._cursor.close()


class Connection:
    """A connection without transactions of its own, as the book asks of the standard library's."""

    isolation_level: str | None = None

    def __init__(self, path: str, vfs: str, synchronous: str, pages: str) -> None:
        with _translated():
            self._connection = apsw.Connection(path, vfs=vfs)
            self._connection.execute(f"PRAGMA wal_autocheckpoint={int(pages)}")
        self._synchronous = synchronous

    def cursor(self) -> Cursor:
        """A cursor."""
        return Cursor(self._connection)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Cursor:
        """On a cursor of its own."""
        if statement == "PRAGMA synchronous=FULL":
            statement = f"PRAGMA synchronous={self._synchronous}"
        return self.cursor().execute(statement, values)

    def create_function(self, name: str, arguments: int, function: Any, **how: Any) -> None:  # noqa: ANN401
        """A function of SQL."""
        self._connection.create_scalar_function(name, function, arguments, **how)

    def commit(self) -> None:
        """End a transaction, if one is open."""
        if self._connection.in_transaction:
            self.execute("COMMIT")

    def rollback(self) -> None:
        """Give a transaction up, if one is open."""
        if self._connection.in_transaction:
            self.execute("ROLLBACK")

    def close(self) -> None:
        """Let go."""
        with _translated():
            self._connection.close()


def _connect(path: str, *, vfs: str, synchronous: str, pages: str, **usual: object) -> Connection:
    del usual
    return Connection(path, vfs, synchronous, pages)


_ERRORS: Final = ("Error", "DatabaseError", "IntegrityError", "InterfaceError", "InternalError", "OperationalError")
_MORE: Final = ("DataError", "NotSupportedError", "ProgrammingError", "Warning", "Binary")
DBAPI: Final = SimpleNamespace(
    connect=_connect,
    apilevel="2.0",
    threadsafety=1,
    paramstyle="qmark",
    sqlite_version=apsw.sqlite_lib_version(),
    sqlite_version_info=tuple(int(part) for part in apsw.sqlite_lib_version().split(".")),
    **{name: getattr(sqlite3, name) for name in (*_ERRORS, *_MORE)},
)


class FaultyPlugin(CreateEnginePlugin):
    """What ``plugin=faulty`` in a URL means: SQLAlchemy's own SQLite dialect, on :data:`DBAPI`."""

    def __init__(self, url: URL, kwargs: dict[str, Any]) -> None:
        super().__init__(url, kwargs)
        kwargs["module"] = DBAPI
        # What the query says is for :func:`_connect`.
        kwargs["connect_args"] = {**kwargs.get("connect_args", {}), **url.query}

    def update_url(self, url: URL) -> URL:
        """The dialect knows nothing of it."""
        return url.difference_update_query(tuple(url.query))


plugins.register(NAME, __name__, FaultyPlugin.__name__)
