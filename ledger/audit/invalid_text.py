"""Texts that are none: SQLite keeps any bytes as text, and a row that holds others than UTF-8 cannot be read at all.

The driver says so without saying where. Here the same rows are read as bytes, which always works, to name the first.
PostgreSQL takes no such bytes.
"""

from __future__ import annotations

from sqlalchemy import Connection, LargeBinary, String, cast, select
from sqlalchemy.sql.schema import Table

from ledger.log.verification_findings import Broken
from ledger.store.engine import is_postgres
from ledger.store.tables import EntryRow, metadata, table_of


def find_undecodable(connection: Connection) -> None:
    """Read every text of every table as bytes. Raises: Broken, naming the first that is not UTF-8."""
    if not is_postgres(connection):
        for table in metadata.sorted_tables:
            _search(connection, table)


def _search(connection: Connection, table: Table) -> None:
    texts = [column for column in table.columns if isinstance(column.type, String)]
    if not texts:
        return
    keys = list(table.primary_key.columns)
    chosen = select(*(cast(one, LargeBinary) for one in (*texts, *keys))).order_by(*keys)
    with connection.execute(chosen, execution_options={"yield_per": 1_000}) as rows:
        for row in rows:
            for column, value in zip(texts, row, strict=False):
                if value is not None and not _decodes(bytes(value)):
                    key = ", ".join(bytes(one).decode(errors="backslashreplace") for one in row[len(texts) :])
                    index = int(key) if table is table_of(EntryRow) else None
                    raise Broken(index, f"{table.name}: the row of {key} cannot be read: {column.name} is not UTF-8")


def _decodes(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
