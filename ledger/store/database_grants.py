"""Grants of a PostgreSQL book: the owner upgrades it, the application appends to it.

The owner is the role that runs ``epsilon db upgrade``. The application's logins are members of ``epsilon_writer``,
which may read everything, append to the append-only tables except the seal, and write the projections; no other
role is granted anything. Where a superuser upgrades, the triggers' functions belong to ``epsilon_guard``, a role
without login, so that the owner of the tables cannot replace them unnoticed. SQLite has no roles.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, Row, text

from ledger.store.engine import is_postgres
from ledger.store.tables import APPEND_ONLY, SEAL

REVISION_TABLE: Final = "alembic_version"


_EXCESS: Final = text(
    "SELECT r.relname, pg_has_role(session_user, r.relowner, 'MEMBER') AS owns, "
    "has_table_privilege(session_user, r.oid, 'UPDATE, DELETE, TRUNCATE, TRIGGER') "
    "OR has_any_column_privilege(session_user, r.oid, 'UPDATE') AS changes, "
    "has_table_privilege(session_user, r.oid, 'SELECT') AS reads, "
    "has_any_column_privilege(session_user, r.oid, 'INSERT') AS appends "
    "FROM pg_catalog.pg_class r WHERE r.relnamespace = 'public'::regnamespace AND r.relname = ANY(:tables) "
    "ORDER BY r.relname"
)


def rights_problem(connection: Connection) -> str | None:
    """The right that a session has and must not have, or lacks and needs, in words; None if its rights are correct."""
    if not is_postgres(connection):
        return None
    role, superuser = connection.execute(
        text("SELECT rolname, rolsuper FROM pg_catalog.pg_roles WHERE rolname = session_user")
    ).one()
    if superuser:
        return f"the role {role} is a superuser, whom no trigger binds"
    for rights in connection.execute(_EXCESS, {"tables": list(APPEND_ONLY)}):
        problem = _problem(rights)
        if problem is not None:
            return f"the role {role} {problem}"
    return None


def _problem(rights: Row[Any]) -> str | None:
    """What is wrong with the rights to one append-only table."""
    if rights.owns:
        return f"owns the table {rights.relname}, and could drop what guards it"
    if rights.changes:
        return f"may change the table {rights.relname}, which is append-only"
    is_seal = rights.relname == SEAL.name
    if is_seal and rights.appends:
        return f"may append to the table {rights.relname}, and could end the book"
    if not rights.reads or not (rights.appends or is_seal):
        return f"may not read and append to the table {rights.relname}"
    return None
