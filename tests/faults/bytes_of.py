"""Every byte that a book stores, one at a time: where it lies, and the same row with one bit of it changed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Engine, Text, cast, select, text
from sqlalchemy.exc import DatabaseError

from ledger.store.append_only_triggers import sqlite_triggers
from ledger.store.engine import engine_of, is_postgres
from ledger.store.tables import APPEND_ONLY, EPOCH, metadata

INTEGER_BYTES: Final = 8


@dataclass(frozen=True)
class Byte:
    """One byte of one value. A text is counted in bytes of UTF-8, an integer in eight."""

    table: str
    key: tuple[tuple[str, Any], ...]
    column: str
    place: int
    value: Any

    def __str__(self) -> str:
        """Where it lies."""
        key = ", ".join(f"{name} {value}" for name, value in self.key)
        return f"{self.table} ({key}): byte {self.place} of {self.column}"

    def changed(self, dice: random.Random) -> Any:  # noqa: ANN401 - of the type of the value
        """The value with one bit of this byte changed; a text may be none any more."""
        if isinstance(self.value, int):
            return self.value ^ 1 << min(62, 8 * self.place + dice.randrange(8))
        data = bytearray(self.value.encode() if isinstance(self.value, str) else self.value)
        data[self.place] ^= 1 << dice.randrange(8)
        return data.decode(errors="surrogateescape") if isinstance(self.value, str) else bytes(data)


def bytes_of(connection: Connection) -> Iterator[Byte]:
    """Every byte of every table but the epoch: it says which process opened the book last, and nothing of the log."""
    for name, table in metadata.tables.items():
        if table is EPOCH:
            continue
        keys = [column.name for column in table.primary_key.columns]
        for row in connection.execute(select(table).order_by(*table.primary_key.columns)).mappings():
            key = tuple((one, row[one]) for one in keys)
            for column, value in row.items():
                if value is None:
                    continue
                size = INTEGER_BYTES if isinstance(value, int) else len(value)
                yield from (Byte(name, key, column, place, value) for place in range(size))


@contextmanager
def unguarded(url: str) -> Iterator[Engine]:
    """A book as someone has it who may do anything: no trigger stands in the way, and no check where that can be."""
    engine = engine_of(url, writes=True)
    try:
        with engine.begin() as connection:
            if is_postgres(connection):
                for table in APPEND_ONLY:
                    connection.execute(text(f"ALTER TABLE {table} DISABLE TRIGGER ALL"))
            else:
                for name in sqlite_triggers():
                    connection.execute(text(f"DROP TRIGGER {name}"))
        yield engine
    finally:
        engine.dispose()


def put(engine: Engine, byte: Byte, value: Any) -> bool:  # noqa: ANN401 - of the type of the value
    """Write one value over what stands in its row; whether the database let it be."""
    table = metadata.tables[byte.table]
    try:
        with engine.begin() as connection:
            if is_postgres(connection) and not _decodes(value):
                return False
            if not is_postgres(connection):
                connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
            # The key itself may be what was changed before.
            key = [
                table.c[name] == _as_stored(byte.value if name == byte.column and value != byte.value else one)
                for name, one in byte.key
            ]
            assert connection.execute(table.update().where(*key).values({byte.column: _as_stored(value)})).rowcount == 1
    except DatabaseError:
        return False
    return True


def _decodes(value: Any) -> bool:  # noqa: ANN401
    return not isinstance(value, str) or not any("\udc80" <= at <= "\udcff" for at in value)


def _as_stored(value: Any) -> Any:  # noqa: ANN401 - a value, or the text that bytes are for SQLite
    return value if _decodes(value) else cast(value.encode(errors="surrogateescape"), Text)
