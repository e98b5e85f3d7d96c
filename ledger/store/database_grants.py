"""Grants of a PostgreSQL book: the owner upgrades it, the application appends to it.

The owner is the role that runs ``epsilon db upgrade``. The application's logins are members of ``epsilon_writer``,
which may read everything, append to the append-only tables, and write the projections; no other role is granted
anything. Where a superuser upgrades, the triggers' functions belong to ``epsilon_guard``, a role without login, so
that the owner of the tables cannot replace them unnoticed. SQLite has no roles.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from ledger.store.engine import is_postgres
from ledger.store.tables import APPEND_ONLY

REVISION_TABLE: Final = "alembic_version"


_EXCESS: Final = text(
    "SELECT r.relname, pg_has_role(session_user, r.relowner, 'MEMBER') AS owns, "
    "has_table_privilege(session_user, r.oid, 'UPDATE, DELETE, TRUNCATE, TRIGGER') "
    "OR has_any_column_privilege(session_user, r.oid, 'UPDATE') AS changes, "
    "has_table_privilege(session_user, r.oid, 'SELECT') "
    "AND has_table_privilege(session_user, r.oid, 'INSERT') AS needs "
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
    for table, owns, changes, needs in connection.execute(_EXCESS, {"tables": list(APPEND_ONLY)}):
        if owns:
            return f"the role {role} owns the table {table}, and could drop what guards it"
        if changes:
            return f"the role {role} may change the table {table}, which is append-only"
        if not needs:
            return f"the role {role} may not read and append to the table {table}"
    return None
