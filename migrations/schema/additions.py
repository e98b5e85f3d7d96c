"""What each revision of the schema adds to the one before, and how it is made and unmade.

Tables, triggers and rights are written once, in ``ledger.tables``, ``ledger.triggers`` and ``ledger.roles``. What is
not listed here belongs to the first revision. ``tests/migrations/golden`` keeps the printed SQL: no change goes unseen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from alembic import op
from sqlalchemy import Table, func, select
from sqlalchemy.schema import CreateIndex, CreateTable, DropTable

from ledger.store.append_only_triggers import (
    GUARD,
    postgres_functions,
    postgres_triggers,
    sqlite_triggers,
    table_of_trigger,
)
from ledger.store.database_grants import grants
from ledger.store.tables import APPEND_ONLY, metadata
from migrations.connect.errors import NotDone

FIRST: Final = "0001"


@dataclass(frozen=True, slots=True)
class Addition:
    """Tables with all their triggers; triggers on tables that were there before; the functions they call."""

    tables: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()


_LATER: Final = {"0002": Addition(("seal",), ("entry_not_sealed",), ("refuse_sealed",))}


def tables_at(revision: str) -> list[Table]:
    """Every table that a book of this revision has."""
    return [table for table in metadata.sorted_tables if _revision_of_table(table.name) <= revision]


def triggers_at(revision: str, dialect: str) -> list[str]:
    """The names of every trigger that a book of this revision has."""
    return [name for name in _triggers(dialect) if _revision_of_trigger(name) <= revision]


def create(revision: str) -> None:
    """Make what a revision adds, inside a migration."""
    tables = _tables_of(revision)
    for table in tables:
        op.execute(CreateTable(table))
        for index in sorted(table.indexes, key=lambda one: str(one.name)):
            op.execute(CreateIndex(index))
    if not _in_postgres():
        _run(text for name, text in sqlite_triggers().items() if _revision_of_trigger(name) == revision)
        return
    functions = _functions_of(revision)
    _run([f"CREATE SCHEMA {GUARD}"] if revision == FIRST else [])
    _run(text for name, text in postgres_functions().items() if name in functions)
    for name, texts in postgres_triggers().items():
        _run(texts if _revision_of_trigger(name) == revision else ())
    _run(grants([table.name for table in tables], functions))


def drop(revision: str) -> None:
    """Unmake what a revision added, inside a migration.

    Raises:
        NotDone: if that would delete a row of an append-only table.
    """
    tables = _tables_of(revision)
    for table in tables:
        rows = op.get_bind().execute(select(func.count()).select_from(table)).scalar_one()
        if rows and table.name in APPEND_ONLY:
            raise NotDone(f"going below revision {revision} would delete what {table.name} holds: nothing is deleted")
    for name in _triggers(op.get_context().dialect.name):
        if _revision_of_trigger(name) == revision:
            op.execute(f"DROP TRIGGER {name} ON {table_of_trigger(name)}" if _in_postgres() else f"DROP TRIGGER {name}")
    if _in_postgres():
        _run(f"DROP FUNCTION {GUARD}.{name}()" for name in _functions_of(revision))
    for table in reversed(tables):
        op.execute(DropTable(table))


def _run(statements: Iterable[str]) -> None:
    for one in statements:
        op.execute(one)


def _in_postgres() -> bool:
    return str(op.get_context().dialect.name) == "postgresql"


def _triggers(dialect: str) -> Iterable[str]:
    return postgres_triggers() if dialect == "postgresql" else sqlite_triggers()


def _tables_of(revision: str) -> list[Table]:
    return [table for table in metadata.sorted_tables if _revision_of_table(table.name) == revision]


def _functions_of(revision: str) -> list[str]:
    later = {name: one for one, added in _LATER.items() for name in added.functions}
    return [name for name in postgres_functions() if later.get(name, FIRST) == revision]


def _revision_of_table(name: str) -> str:
    return next((revision for revision, added in _LATER.items() if name in added.tables), FIRST)


def _revision_of_trigger(name: str) -> str:
    for revision, added in _LATER.items():
        if name in added.triggers or any(name.startswith(f"{table}_no_") for table in added.tables):
            return revision
    return FIRST
