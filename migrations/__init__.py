"""The schema of a book over time: Alembic's versions, and ``epsilon db``."""

from __future__ import annotations

from pathlib import Path


class SchemaUnknown(RuntimeError):  # noqa: N818 - said to people as it is
    """The book has a schema this program does not know."""


def upgrade(url: str) -> None:
    """Bring a book to the newest schema, creating it where there is none; all in one transaction.

    Raises:
        SchemaUnknown: if the book was written by a newer program, or lost a trigger.
    """
    # Imported where they are used: every command imports this package, --help included.
    from alembic import command
    from alembic.config import Config
    from alembic.runtime.migration import MigrationContext

    from ledger.storage import engine_of
    from ledger.triggers import sqlite_triggers

    engine = engine_of(url, writes=True)
    try:
        with engine.begin() as connection:
            config = Config()
            config.set_main_option("script_location", str(Path(__file__).parent))
            config.set_main_option("path_separator", "os")
            config.attributes["connection"] = connection
            current = MigrationContext.configure(connection).get_current_revision()
            if current not in {None, "0001"}:
                raise SchemaUnknown(f"the book's schema {current} is newer than this program")
            command.upgrade(config, "head")
            if engine.dialect.name == "sqlite":
                found = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'trigger'")
                missing = set(sqlite_triggers()) - {str(row[0]) for row in found}
                if missing:
                    raise SchemaUnknown(f"the book lacks the trigger {min(missing)}")
    finally:
        engine.dispose()


def current(url: str) -> str | None:
    """The book's schema revision, None where there is no book."""
    from alembic.runtime.migration import MigrationContext

    from ledger.storage import engine_of

    engine = engine_of(url, writes=False)
    try:
        with engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    finally:
        engine.dispose()
