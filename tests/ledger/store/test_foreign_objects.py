"""A book with an object in its schema that the migrations did not make is not opened."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from ledger.book.book import BookUnusable
from tests.factories.stored import StoredWorld, open_world
from tests.ledger.store.test_postgresql import execute
from tests.postgres import new_book

RESET: Final = "UPDATE account SET posted = 0, pending = 0"
"""A whole budget given back."""


@pytest.mark.parametrize("when", ["AFTER INSERT ON checkpoint", "BEFORE UPDATE ON account", "AFTER INSERT ON charge"])
def test_an_added_trigger_stops_the_start_on_sqlite(tmp_path: Path, when: str) -> None:
    """Whatever it waits for; the book opens again once it is dropped."""
    with open_world(tmp_path) as world:
        world.book.close()
        with closing(sqlite3.connect(world.path)) as connection:
            connection.execute(f"CREATE TRIGGER zz {when} BEGIN {RESET}; END")
        table = when.rsplit(maxsplit=1)[-1]
        with pytest.raises(BookUnusable, match=f"the book has the trigger zz on the table {table}, which"):
            world.open()
        with closing(sqlite3.connect(world.path)) as connection:
            connection.execute("DROP TRIGGER zz")
        world.reopen()


FUNCTION: Final = f"CREATE FUNCTION zz() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {RESET}; RETURN NULL; END $$"
ADDED: Final = {
    "trigger": (
        (FUNCTION, "CREATE TRIGGER zz AFTER INSERT ON checkpoint EXECUTE FUNCTION zz()"),
        "the trigger zz on the table checkpoint",
        "DROP TRIGGER zz ON checkpoint",
    ),
    "trigger of our name elsewhere": (
        (FUNCTION, "CREATE TRIGGER entry_no_gap AFTER INSERT ON charge EXECUTE FUNCTION zz()"),
        "the trigger entry_no_gap on the table charge",
        "DROP TRIGGER entry_no_gap ON charge",
    ),
    "rule": (
        (f"CREATE RULE zz AS ON INSERT TO checkpoint DO ALSO {RESET}",),
        "the rule zz on the table checkpoint",
        "DROP RULE zz ON checkpoint",
    ),
    "row security": (
        ("ALTER TABLE account ENABLE ROW LEVEL SECURITY",),
        "row security on the table account",
        "ALTER TABLE account DISABLE ROW LEVEL SECURITY",
    ),
    "child table": (
        ("CREATE TABLE zz () INHERITS (document)",),
        "the child zz of the table document",
        "DROP TABLE zz",
    ),
}


@pytest.mark.parametrize("kind", ADDED)
def test_an_added_object_stops_the_start_on_postgresql(tmp_path: Path, kind: str) -> None:
    """What the owner added is named, of whichever kind; the book opens again once it is dropped."""
    added, name, dropped = ADDED[kind]
    with new_book() as database:
        world = StoredWorld(tmp_path, database.url)
        world.book.close()
        execute(database.owner, *added)
        with pytest.raises(BookUnusable, match=f"the book has {name}, which its migrations did not make: drop it"):
            world.open()
        execute(database.owner, dropped)
        world.reopen()
        world.book.close()


def test_what_is_not_in_the_books_own_schema_is_left_alone(tmp_path: Path) -> None:
    """Another schema of the same database, and a view, which changes nothing."""
    with new_book() as database:
        world = StoredWorld(tmp_path, database.url)
        world.book.close()
        execute(database.owner, "CREATE SCHEMA other", "CREATE TABLE other.plain (n int)")
        execute(database.owner, "CREATE RULE zz AS ON INSERT TO other.plain DO INSTEAD NOTHING")
        execute(database.owner, "CREATE VIEW totals AS SELECT count(*) FROM entry")
        world.reopen()
        assert world.size == 0
        world.book.close()
