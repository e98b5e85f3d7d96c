"""The schema of a book over time: Alembic's versions, and ``epsilon db``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migrations.connect.errors import SchemaUnknown

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

__all__ = ["SchemaUnknown", "upgrade"]


def upgrade(url: str | URL) -> None:
    """Upgrade a book to the newest schema, creating it if there is none; all in one transaction.

    Raises:
        SchemaUnknown: if the book was written by a newer program, or lost a trigger.
        NotDone: if another process has it open for writing.
    """
    # Imported where they are used: every command imports this package, --help included.
    from migrations.cli.upgrade import migrate
    from migrations.connect.book_location import Place
    from migrations.connect.exclusive_access import Limits

    migrate(Place.of(url), Limits(lock_s=0), None, lambda _done, _total: None)
