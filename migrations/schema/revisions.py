"""The schema of a book: which revision it has, and the way to another one, inside a transaction or as SQL."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect

from ledger.store.append_only_triggers import altered_triggers
from ledger.store.database_grants import REVISION_TABLE
from ledger.store.tables import SCHEMA_REVISION
from migrations.connect.book_location import Place
from migrations.connect.errors import NotDone, SchemaUnknown
from migrations.connect.exclusive_access import Limits, tables_in
from migrations.schema.history import FIRST, HISTORY, schema_at


def known_revisions(history: Path = HISTORY) -> list[str]:
    """Every revision of this program, the oldest first."""
    walked = ScriptDirectory.from_config(_config(history)).walk_revisions()
    return [str(one.revision) for one in walked][::-1]


def holds_book(place: Place, limits: Limits | None = None) -> bool:
    """Whether there is a book; looks, and changes nothing, not even a journal mode.

    Raises:
        SchemaUnknown: if there is something else.
        NotDone: if the place cannot be read.
    """
    tables = tables_in(place, limits)
    _check_tables(tables, place.display_name)
    return bool(tables)


def _check_tables(tables: frozenset[str], name: str) -> None:
    missing = {REVISION_TABLE, *schema_at(FIRST, "sqlite").tables} - tables
    if tables and missing:
        raise SchemaUnknown(f"{name} holds tables that are not a book's ({min(tables)}): name a database of its own")


def revision_of(connection: Connection, name: str, history: Path = HISTORY) -> str | None:
    """The book's revision, None in an empty database.

    Raises:
        SchemaUnknown: if a newer program made the book, or if the database holds something else.
    """
    tables = frozenset(inspect(connection).get_table_names())
    _check_tables(tables, name)
    if not tables:
        return None
    heads = MigrationContext.configure(connection).get_current_heads()
    if len(heads) != 1 or heads[0] not in known_revisions(history):
        revision = " and ".join(heads) or "without a revision"
        raise SchemaUnknown(f"the book's schema {revision} is newer than this program, which knows {SCHEMA_REVISION}")
    return str(heads[0])


def bring_to(connection: Connection, revision: str, name: str, history: Path = HISTORY) -> None:
    """Take the schema up or down to a revision, and check that every trigger of it is there.

    Args:
        revision: the one that the book is to have.
        name: of the book, for messages.
        history: the folder of the revisions.

    Raises:
        SchemaUnknown: if the book is unknown, or lacks a trigger afterwards.
        NotDone: if there is no such revision, or going down would delete what is append-only.
    """
    revisions = known_revisions(history)
    if revision not in revisions:
        raise NotDone(f"there is no revision {revision[:40]!r}: the revisions are {', '.join(revisions)}")
    current = revision_of(connection, name, history)
    config = _config(history)
    config.attributes["connection"] = connection
    (command.downgrade if current is not None and revision < current else command.upgrade)(config, revision)
    missing = missing_triggers(connection, revision, history)
    if missing:
        raise SchemaUnknown(f"the book lacks the trigger {missing[0]}")


def missing_triggers(connection: Connection, revision: str, history: Path = HISTORY) -> list[str]:
    """The triggers of a revision that are not there, silent, or not those of the program."""
    expected = schema_at(revision, connection.dialect.name, history).triggers
    return [name for name in altered_triggers(connection) if name in expected]


def print_sql(out: TextIO, dialect: str, here: str | None, revision: str = SCHEMA_REVISION) -> None:
    """Write the SQL that an upgrade would run, one transaction; no database is read."""
    config = _config(out=out)
    config.attributes["dialect"] = dialect
    command.upgrade(config, f"{here or 'base'}:{revision}", sql=True)


def _config(history: Path = HISTORY, out: TextIO | None = None) -> Config:
    config = Config(output_buffer=out) if out is not None else Config()
    # A percent sign would begin an interpolation.
    config.set_main_option("script_location", str(Path(__file__).parents[1]).replace("%", "%%"))
    config.set_main_option("version_locations", str(history).replace("%", "%%"))
    config.set_main_option("path_separator", "newline")
    return config
