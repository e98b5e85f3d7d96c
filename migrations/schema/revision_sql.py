"""The history of the schema, frozen as SQL: one folder a revision, one file a direction and engine.

    versions/v0002_seal.py                        the revision: its number, its predecessor, its two functions
    versions/v0002_seal/upgrade.sqlite.sql        statements, each followed by ``;`` and an empty line
    versions/v0002_seal/downgrade.postgresql.sql

A file is never changed once a book may have its schema: a revision runs these files, whatever ``ledger.store.tables``
holds today. ``tests/migrations`` compares the whole history with today's tables on both engines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

from alembic import op
from sqlalchemy import text

from migrations.connect.errors import NotDone

HISTORY: Final = Path(__file__).parents[1] / "versions"
FIRST: Final = "0001"
_OBJECT: Final = re.compile(r"(CREATE|DROP) (TABLE|TRIGGER) (\w+)")
_GRANT: Final = re.compile(r"GRANT ([A-Z, ]+) ON (\w+) TO (\w+)")
_REVOKE: Final = re.compile(r"REVOKE ALL ON (\w+) FROM")


@dataclass(frozen=True, slots=True)
class Schema:
    """The objects in a book of one revision, by name.

    Attributes:
        grants: (table, role, privilege) on PostgreSQL.
    """

    tables: set[str] = field(default_factory=set)
    triggers: set[str] = field(default_factory=set)
    grants: set[tuple[str, str, str]] = field(default_factory=set)


@lru_cache(maxsize=64)
def schema_at(revision: str, dialect: str, history: Path = HISTORY) -> Schema:
    """The schema after the revisions up to this one on an engine, ``sqlite`` or ``postgresql``."""
    schema = Schema()
    for file in sorted(history.glob(f"v*/upgrade.{dialect}.sql")):
        if file.parent.name[1:5] > revision:
            break
        for statement in _statements(file):
            if grant := _GRANT.match(statement):
                schema.grants.update((grant[2], grant[3], right) for right in grant[1].split(", "))
            elif revoked := _REVOKE.match(statement):
                schema.grants.difference_update({grant for grant in schema.grants if grant[0] == revoked[1]})
            elif made := _OBJECT.match(statement):
                names = schema.tables if made[2] == "TABLE" else schema.triggers
                (names.add if made[1] == "CREATE" else names.discard)(made[3])
    return schema


def run_sql(revision_file: str, direction: str) -> None:
    """Run the file of a revision for the current engine, inside a migration.

    Args:
        revision_file: ``__file__`` of the revision; its files are in the folder of the same name.
        direction: ``upgrade`` or ``downgrade``.
    """
    folder, dialect = Path(revision_file).with_suffix(""), op.get_context().dialect.name
    for statement in _statements(folder / f"{direction}.{dialect}.sql"):
        op.execute(statement)


def require_empty(table: str) -> None:
    """Refuse a downgrade that would delete a row of an append-only table. Raises: NotDone."""
    if op.get_bind().execute(text(f"SELECT EXISTS (SELECT 1 FROM {table})")).scalar_one():  # noqa: S608 - a name of ours
        raise NotDone(f"the downgrade would delete the rows of {table}, and nothing is deleted from a log")


def require_short(table: str, column: str, size_max: int) -> None:
    """Refuse a downgrade that would delete a row of an append-only table which is too long for it. Raises: NotDone."""
    query = text(f"SELECT EXISTS (SELECT 1 FROM {table} WHERE length({column}) > {size_max})")  # noqa: S608 - names of ours
    if op.get_bind().execute(query).scalar_one():
        raise NotDone(
            f"the downgrade would delete the rows of {table} that are longer than {size_max} bytes, and nothing is "
            "deleted from a log"
        )


def _statements(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").removesuffix(";\n").split(";\n\n")
