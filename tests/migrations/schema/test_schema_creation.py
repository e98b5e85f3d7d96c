"""The schema: made from nothing, made once, and exactly what the program says."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from typer.testing import CliRunner

import migrations
from ledger.book.book import BookUnusable
from ledger.store.append_only_triggers import sqlite_triggers
from ledger.store.engine import engine_of
from ledger.store.tables import SCHEMA_REVISION, metadata
from migrations.cli.main import app
from migrations.cli.status import revision_at
from migrations.connect.book_location import Place
from tests.factories.stored import StoredWorld


@pytest.fixture
def engine() -> str:
    """The tests of this module look into an SQLite file."""
    return "sqlite"


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A book without an entry."""
    path = tmp_path / "book.sqlite"
    migrations.upgrade(f"sqlite:///{path}")
    return path


def _schema(path: Path) -> list[tuple[str, str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name").fetchall()


def test_a_second_upgrade_changes_nothing(made: Path) -> None:
    """The schema after two upgrades is the schema after one."""
    before = _schema(made)
    migrations.upgrade(f"sqlite:///{made}")
    assert _schema(made) == before
    assert revision_at(Place.parse(str(made))) == SCHEMA_REVISION


def test_the_tables_are_those_of_the_program(made: Path) -> None:
    """Alembic finds nothing between the upgraded book and the metadata."""
    engine = engine_of(f"sqlite:///{made}", writes=False)
    with engine.begin() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    engine.dispose()


def test_the_triggers_are_those_of_the_program(made: Path) -> None:
    """Each by its name and word for word, and no other."""
    assert {name: sql for kind, name, sql in _schema(made) if kind == "trigger"} == sqlite_triggers()


@pytest.mark.parametrize("table", sorted(metadata.tables))
def test_every_table_is_strict(made: Path, table: str) -> None:
    """A word in an integer column is refused by the database; a default SQLite table would keep it."""
    columns = metadata.tables[table].columns
    values: dict[str, object] = {one.name: b"x" * 32 if str(one.type) == "BLOB" else "0" for one in columns}
    # A lone integer key is SQLite's row number, which refuses words even where a table is not strict.
    keys = list(metadata.tables[table].primary_key.columns)
    numbers = [one.name for one in columns if "INT" in str(one.type) and [one] != keys]
    words = [one.name for one in columns if str(one.type) == "TEXT"]
    values |= {numbers[0]: "many"} if numbers else {words[0]: b"many"}
    marks = ", ".join("?" * len(values))
    statement = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})"  # noqa: S608 - our own names
    with closing(sqlite3.connect(made)) as connection:
        connection.executescript("".join(f"DROP TRIGGER {name};" for name in sqlite_triggers()))
        with pytest.raises(sqlite3.IntegrityError, match=f"cannot store (TEXT|BLOB) value in .* column {table}"):
            connection.execute(statement, list(values.values()))


def test_a_newer_book_is_refused(world: StoredWorld) -> None:
    """Neither an upgrade nor an opening touches a schema of a later program."""
    world.book.close()
    with closing(sqlite3.connect(world.path)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    with pytest.raises(migrations.SchemaUnknown, match="9999 is newer than this program"):
        migrations.upgrade(world.url)
    with pytest.raises(BookUnusable, match="9999 is newer than this program, which knows 0008"):
        world.open()


@pytest.mark.damages
def test_a_folder_without_a_book_is_named(world: StoredWorld) -> None:
    """Opening says what to do; so does an empty file."""
    world.book.close()
    world.path.rename(world.path.with_name("elsewhere"))
    with pytest.raises(BookUnusable, match=r"there is no book at .*: run 'epsilon db upgrade'"):
        world.open()
    world.path.touch()
    with pytest.raises(BookUnusable, match=r"there is no book here .*: run 'epsilon db upgrade'"):
        world.open()


@pytest.mark.parametrize("name", sorted(sqlite_triggers()))
def test_a_lost_trigger_is_noticed(world: StoredWorld, name: str) -> None:
    """At the next opening, and at the next upgrade."""
    world.book.close()
    with closing(sqlite3.connect(world.path)) as connection:
        connection.execute(f"DROP TRIGGER {name}")
    with pytest.raises(BookUnusable, match=f"lacks its trigger {name}"):
        world.open()
    with pytest.raises(migrations.SchemaUnknown, match=f"lacks the trigger {name}"):
        migrations.upgrade(world.url)


def test_a_blunted_trigger_is_noticed(world: StoredWorld) -> None:
    """A trigger of the right name that does nothing does not count."""
    world.book.close()
    with closing(sqlite3.connect(world.path)) as connection:
        connection.execute("DROP TRIGGER entry_no_update")
        connection.execute("CREATE TRIGGER entry_no_update BEFORE UPDATE ON entry BEGIN SELECT 1; END")
    with pytest.raises(BookUnusable, match="entry_no_update"):
        world.open()


def test_the_command_makes_a_book_and_tells_its_schema(tmp_path: Path) -> None:
    """``epsilon db upgrade`` and ``status``, and status where nothing is, or a folder."""
    path, runner = tmp_path / "book.sqlite", CliRunner()
    missing = runner.invoke(app, ["db", "status", str(path)])
    assert (missing.exit_code, "there is no book at" in missing.output) == (4, True)
    for command in ("status", "upgrade"):
        told = runner.invoke(app, ["db", command, str(tmp_path)])
        assert told.output == f"there is no book at {tmp_path}: it is a folder; name the SQLite file in it\n"
    assert runner.invoke(app, ["db", "upgrade", str(path)]).exit_code == 0
    assert f"schema    {SCHEMA_REVISION}, the newest" in runner.invoke(app, ["db", "status", str(path)]).output


def test_the_command_refuses_a_newer_book(made: Path) -> None:
    """One sentence and exit code 5."""
    with closing(sqlite3.connect(made)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    found = CliRunner().invoke(app, ["db", "upgrade", str(made)])
    assert (found.exit_code, found.output) == (
        5,
        f"the book's schema 9999 is newer than this program, which knows {SCHEMA_REVISION}\n",
    )
