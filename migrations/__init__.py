"""The schema of a book over time: Alembic's versions, and ``epsilon db``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection


class SchemaUnknown(RuntimeError):  # noqa: N818 - said to people as it is
    """The book has a schema this program does not know, or is no book."""


@contextmanager
def _of(url: str, *, writes: bool) -> Iterator[Connection]:
    from sqlalchemy.exc import DatabaseError

    from ledger.engines import engine_of, name_of

    engine = engine_of(url, writes=writes)
    try:
        with engine.begin() as connection:
            yield connection
    except DatabaseError as fault:
        raise SchemaUnknown(f"there is no book at {name_of(url)}: {fault.orig}") from None
    finally:
        engine.dispose()


def upgrade(url: str) -> None:
    """Bring a book to the newest schema, creating it where there is none; all in one transaction.

    Raises:
        SchemaUnknown: if the book was written by a newer program, or lost a trigger.
    """
    # Imported where they are used: every command imports this package, --help included.
    from alembic import command
    from alembic.config import Config
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    from ledger.triggers import lacking

    with _of(url, writes=True) as connection:
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = connection
        found = MigrationContext.configure(connection).get_current_revision()
        known = {revision.revision for revision in ScriptDirectory.from_config(config).walk_revisions()}
        if found is not None and found not in known:
            raise SchemaUnknown(f"the book's schema {found} is newer than this program")
        command.upgrade(config, "head")
        missing = lacking(connection)
        if missing is not None:
            raise SchemaUnknown(f"the book lacks the trigger {missing}")


def current(url: str) -> str | None:
    """The book's schema revision, None where there is none. Raises: SchemaUnknown, if this is no database."""
    from alembic.runtime.migration import MigrationContext

    with _of(url, writes=False) as connection:
        return MigrationContext.configure(connection).get_current_revision()
