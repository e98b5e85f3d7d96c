"""The revision of a book's schema, against the one that this program knows."""

from __future__ import annotations

from typing import ClassVar, Final

from sqlalchemy import text

from ledger.domain.exit_codes import ExitCode
from ledger.store.engine import Executor
from ledger.store.tables import SCHEMA_REVISION


class BookUnusable(RuntimeError):  # noqa: N818 - what is the case
    """The book cannot be opened; the message says why and what to do."""

    exit_code: ClassVar = ExitCode.CONFLICT


READABLE_SINCE: Final = "0002"
"""The oldest revision that is read as the newest is: those since add what readers need not know."""


def check_schema(connection: Executor, oldest: str = SCHEMA_REVISION) -> None:
    """The book's schema is this program's, now, or one since ``oldest``. Raises: BookUnusable, DatabaseError."""
    check_revision(str(connection.execute(_REVISION).scalar()), oldest)


def check_revision(found: str, oldest: str = SCHEMA_REVISION) -> None:
    """The same of a revision that was read before. Raises: BookUnusable."""
    revision = found[:40]
    if revision.isdecimal() and oldest <= revision <= SCHEMA_REVISION:
        return
    # Revisions are numbers of four digits; what is none was made by a program that this one does not know.
    if revision.isdecimal() and revision < SCHEMA_REVISION:
        raise BookUnusable(f"the book's schema is {revision}, not {SCHEMA_REVISION}: run 'epsilon db upgrade'")
    raise BookUnusable(f"the book's schema {revision} is newer than this program, which knows {SCHEMA_REVISION}")


_REVISION = text("SELECT version_num FROM alembic_version")
