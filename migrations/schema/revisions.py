"""The schema of a book: its revision, triggers and grants, and upgrades and downgrades, run or printed as SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TextIO

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from ledger.store.append_only_triggers import altered_triggers
from ledger.store.database_grants import REVISION_TABLE
from ledger.store.engine import is_postgres
from ledger.store.postgres.server_settings import encoding_problem
from ledger.store.tables import SCHEMA_REVISION
from migrations.connect.book_location import Place
from migrations.connect.errors import NotDone, SchemaUnknown
from migrations.connect.exclusive_access import Limits, tables_in
from migrations.schema.revision_sql import FIRST, HISTORY, schema_at

_GRANTED: Final = text(
    "SELECT r.relname, coalesce(w.rolname, 'everybody'), a.privilege_type FROM pg_catalog.pg_class r "
    "LEFT JOIN pg_catalog.pg_attribute c ON c.attrelid = r.oid AND c.attacl IS NOT NULL "
    "CROSS JOIN LATERAL pg_catalog.aclexplode("
    "coalesce(r.relacl, pg_catalog.acldefault('r', r.relowner)) || coalesce(c.attacl, '{}')) a "
    "LEFT JOIN pg_catalog.pg_roles w ON w.oid = a.grantee "
    "WHERE r.relnamespace = 'public'::regnamespace AND r.relkind IN ('r', 'p') AND a.grantee <> r.relowner"
)

_ROLE_LACKING: Final = text(
    "SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'epsilon_writer') "
    "AND NOT (SELECT rolcreaterole OR rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user)"
)


def known_revisions(history: Path = HISTORY) -> list[str]:
    """Every revision of this program, the oldest first."""
    walked = ScriptDirectory.from_config(_config(history)).walk_revisions()
    return [str(revision.revision) for revision in walked][::-1]


def holds_book(place: Place, limits: Limits | None = None) -> bool:
    """Whether there is a book; reads only, and does not even change a journal mode.

    Raises:
        SchemaUnknown: if the database holds something else.
        NotDone: if the database cannot be read.
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
    """Upgrade or downgrade the schema to a revision, and check that all its triggers exist.

    Args:
        revision: the target revision.
        name: of the book, for messages.
        history: the folder of the revisions.

    Raises:
        SchemaUnknown: if the book is unknown, or lacks a trigger afterwards.
        NotDone: if there is no such revision, the database lacks characters, the application's role is missing and may
            not be created, or going down would delete append-only rows.
    """
    revisions = known_revisions(history)
    if revision not in revisions:
        raise NotDone(f"there is no revision {revision[:40]!r}: the revisions are {', '.join(revisions)}")
    if (wrong := encoding_problem(connection)) is not None:
        raise NotDone(f"{name}: {wrong}")
    current = revision_of(connection, name, history)
    if is_postgres(connection) and connection.execute(_ROLE_LACKING).scalar_one():
        raise NotDone(
            f"{name}: the application's role is missing, and this role may not create it: a superuser, or a role with "
            "CREATEROLE, must first run: CREATE ROLE epsilon_writer NOLOGIN"
        )
    config = _config(history)
    config.attributes["connection"] = connection
    (command.downgrade if current is not None and revision < current else command.upgrade)(config, revision)
    missing = missing_triggers(connection, revision, history)
    if missing:
        raise SchemaUnknown(f"the book lacks the trigger {missing[0]}")


def missing_triggers(connection: Connection, revision: str, history: Path = HISTORY) -> list[str]:
    """The triggers of a revision that are missing, disabled, or not those of the program."""
    expected = schema_at(revision, connection.dialect.name, history).triggers
    return [name for name in altered_triggers(connection) if name in expected]


def wrong_grants(connection: Connection, revision: str) -> list[str]:
    """Privileges that a role has but must not have, or lacks but needs, as sentences in order; empty on SQLite.

    A service checks its own role when it opens the book (``ledger.store.database_grants``); an operator is the owner,
    who may do everything, and checks every other role. Roles other than the application's may be granted to read, and
    nothing else.
    """
    if not is_postgres(connection):
        return []
    granted = {(str(table), str(who), str(right)) for table, who, right in connection.execute(_GRANTED)}
    due = schema_at(revision, "postgresql").grants
    more = [f"{who} may {right} {table}" for table, who, right in granted - due if right != "SELECT"]
    less = [f"{who} may not {right} {table}" for table, who, right in due - granted]
    return sorted(more + less)


def print_sql(out: TextIO, dialect: str, here: str | None, revision: str = SCHEMA_REVISION) -> None:
    """Write the SQL that an upgrade from ``here`` would run, one transaction; no database is read. Raises: NotDone."""
    revisions = known_revisions()
    if here is not None and here not in revisions:
        raise NotDone(f"there is no revision {here[:40]!r}: the revisions are {', '.join(revisions)}")
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
