"""The epoch of an SQLite book: a number that each process changes when it opens the book for writing.

Locks exclude processes of one host and one container. Where they do not reach (a second host on a shared disk, a
container with another folder of locks), the process that opened the book first sees by its next batch that the number
is another's, and stops: it commits nothing more into a file that another process writes.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from sqlalchemy import Engine, text

_BEGIN: Final = text(
    "INSERT INTO epoch (position, opening) VALUES (0, :opening) "
    "ON CONFLICT (position) DO UPDATE SET opening = excluded.opening"
)


class WriterEpoch:
    """The epoch that this process began."""

    def __init__(self, writes: Engine) -> None:
        """Begin one, by an engine that writes the book.

        Raises:
            sqlalchemy.exc.DatabaseError: if the number cannot be written.
        """
        self._opening = secrets.randbits(62)
        with writes.begin() as connection:
            connection.execute(_BEGIN, {"opening": self._opening})
        pooled = writes.raw_connection()
        self._connection = _uncached(pooled.driver_connection)
        pooled.detach()

    def is_current(self) -> bool:
        """Whether no other process has begun one since. Raises: sqlite3.DatabaseError."""
        found = self._connection.execute("SELECT opening FROM epoch").fetchone()
        return found is not None and int(found[0]) == self._opening

    def close(self) -> None:
        """Look no more."""
        self._connection.close()


def _uncached(connection: Any) -> Any:  # noqa: ANN401 - the driver's own type
    # A process with another write-ahead log (the same file under another path) sees the file alone.
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    # Without a cache each look reads the file, which that process changes without a trace in this one's log.
    connection.execute("PRAGMA cache_size = 0")
    connection.execute("PRAGMA query_only = ON")
    return connection
