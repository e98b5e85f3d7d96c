"""Rows that are put into a table by statements of many rows."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Column, Integer, MetaData, String, Table, select

from ledger.store.engine import engine_of, url_of
from ledger.store.projection_table import put_rows

TABLE = Table("numbers", MetaData(), Column("number", Integer, primary_key=True), Column("word", String))


def test_every_number_of_rows_is_put(tmp_path: Path) -> None:
    """Few, as many as one statement takes, and more: each row once, and in place of the one with its key."""
    engine = engine_of(url_of(tmp_path / "rows.sqlite"), writes=True)
    with engine.begin() as connection:
        TABLE.create(connection)
        put_rows(connection, TABLE, [])
        first = 0
        for count in (*range(1, 20), 511, 512, 513, 1_100):
            put_rows(connection, TABLE, [(number, "new") for number in range(first, first + count)])
            first += count
        put_rows(connection, TABLE, [(number, "put again") for number in range(0, first, 2)], replaces=True)
        stored = connection.execute(select(TABLE).order_by(TABLE.c.number)).all()
    engine.dispose()
    assert [tuple(row) for row in stored] == [(n, "new" if n % 2 else "put again") for n in range(first)]
