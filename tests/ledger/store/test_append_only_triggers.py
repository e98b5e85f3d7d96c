"""The database itself refuses to change what was written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from tests.factories.stored import open_world, rows

KEYS: Final = {
    "entry": "position, id",
    "tree_node": "level, position",
    "document": "digest",
    "checkpoint": "tree_size",
    "cosignature": "tree_size, vkey",
    "seal": "position",
}
SPOILED: Final = {
    "entry": "position, id, kind, time, x'7b7d'",
    "tree_node": "level, position, zeroblob(32)",
    "document": "digest, x'7b7d'",
    "checkpoint": "tree_size, 'note'",
    "cosignature": "tree_size, vkey, 'line'",
    "seal": "position, 'elsewhere', tree_size",
}
COLUMN: Final = {
    "entry": "data",
    "tree_node": "hash",
    "document": "data",
    "checkpoint": "note",
    "cosignature": "line",
    "seal": "successor",
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed book with a few entries."""
    with open_world(tmp_path_factory.mktemp("book")) as world:
        path = world.path
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO cosignature VALUES (1, 'vkey', 'a line')")
    return path


@pytest.fixture
def database(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection without any setting of ours; every test must leave the rows as they were."""
    before = rows(path)
    with closing(sqlite3.connect(path)) as connection:
        yield connection
        connection.rollback()
    assert rows(path) == before


def _with_a_row(database: sqlite3.Connection, table: str) -> None:
    """A seal stops entries, so there is one only where it is the row to change; it is undone with the rest."""
    if table == "seal":
        database.execute("INSERT INTO seal VALUES (0, 'elsewhere', 10)")


@pytest.mark.parametrize("table", sorted(KEYS))
@pytest.mark.parametrize("verb", ["UPDATE {0} SET {1} = {1}", "DELETE FROM {0}"])
def test_nothing_is_updated_or_deleted(database: sqlite3.Connection, table: str, verb: str) -> None:
    """Not even to the value it has."""
    _with_a_row(database, table)
    with pytest.raises(sqlite3.IntegrityError, match=f"{table} is append-only"):
        database.execute(verb.format(table, KEYS[table].split(",")[0]))


@pytest.mark.parametrize("table", sorted(KEYS))
@pytest.mark.parametrize("verb", ["INSERT OR REPLACE", "REPLACE", "INSERT OR IGNORE", "INSERT"])
def test_nothing_is_replaced(database: sqlite3.Connection, table: str, verb: str) -> None:
    """A row under a key that is there is refused, however it is inserted."""
    _with_a_row(database, table)
    statement = f"{verb} INTO {table} SELECT {SPOILED[table]} FROM {table} LIMIT 1"  # noqa: S608 - our own names
    with pytest.raises(sqlite3.IntegrityError, match=f"{table} is append-only|without a gap|{table} is not of"):
        database.execute(statement)


@pytest.mark.parametrize("table", sorted(KEYS))
def test_an_upsert_changes_nothing(database: sqlite3.Connection, table: str) -> None:
    """ON CONFLICT DO UPDATE is an update too."""
    _with_a_row(database, table)
    key = KEYS[table].removesuffix(", id")
    column = COLUMN[table]
    with pytest.raises(sqlite3.IntegrityError, match=f"{table} is append-only|without a gap|{table} is not of"):
        database.execute(
            f"INSERT INTO {table} SELECT {SPOILED[table]} FROM {table} WHERE true LIMIT 1 "  # noqa: S608 - our own names
            f"ON CONFLICT ({key}) DO UPDATE SET {column} = excluded.{column}"
        )


def test_an_entry_is_not_replaced_by_its_id(database: sqlite3.Connection) -> None:
    """The next position with an id that is there would delete the older entry."""
    with pytest.raises(sqlite3.IntegrityError, match="entry is append-only"):
        database.execute(
            "INSERT OR REPLACE INTO entry SELECT (SELECT count(*) FROM entry), id, kind, time, data FROM entry LIMIT 1"
        )


@pytest.mark.parametrize("position", ["-1", "(SELECT count(*) + 1 FROM entry)", "9007199254740991", "NULL"])
def test_entries_leave_no_gap(database: sqlite3.Connection, position: str) -> None:
    """The one place for a new entry is the next."""
    with pytest.raises(sqlite3.IntegrityError, match="without a gap"):
        database.execute(f"INSERT INTO entry VALUES ({position}, 'new', 'post', 1, x'7b7d')")  # noqa: S608 - above


def test_the_next_place_is_open(database: sqlite3.Connection) -> None:
    """The triggers refuse by what they should: the same statement at the next position passes."""
    place = "(SELECT count(*) FROM entry)"
    done = database.execute(f"INSERT INTO entry VALUES ({place}, 'new', 'post', 1, x'7b7d')")  # noqa: S608 - above
    assert done.rowcount == 1


AHEAD: Final = {
    "checkpoint far ahead": "checkpoint VALUES (99999, 'x')",
    "checkpoint one ahead": "checkpoint SELECT count(*) + 1, 'x' FROM entry",
    "checkpoint of the past": "checkpoint VALUES (1, 'x')",
    "checkpoint of nothing": "checkpoint VALUES (0, 'x')",
    "next leaf": "tree_node SELECT 0, count(*), zeroblob(32) FROM entry",
    "incomplete subtree": "tree_node SELECT 3, count(*) / 8, zeroblob(32) FROM entry",
    "level above the root": "tree_node VALUES (9, 0, zeroblob(32))",
    "level beyond all": "tree_node VALUES (63, 0, zeroblob(32))",
    "level of no shift": "tree_node VALUES (64, 0, zeroblob(32))",
    "negative level": "tree_node VALUES (-1, 0, zeroblob(32))",
    "negative position": "tree_node VALUES (0, -1, zeroblob(32))",
    "seal ahead": "seal SELECT 0, 'elsewhere', count(*) + 1 FROM entry",
    "seal of the past": "seal VALUES (0, 'elsewhere', 1)",
}
"""Rows that could never be removed, and that no writer could go on from."""


@pytest.mark.parametrize("kind", AHEAD)
def test_nothing_is_inserted_ahead_of_the_entries(database: sqlite3.Connection, kind: str) -> None:
    """Whoever may append cannot brick the book by it."""
    with pytest.raises(sqlite3.IntegrityError, match=f"{AHEAD[kind].split()[0]} is not of the entries that are there"):
        database.execute(f"INSERT INTO {AHEAD[kind]}")
