"""Privileges on the tables of a PostgreSQL book, compared with those that the migrations granted.

A service checks its own role when it opens the book (``ledger.store.database_grants``); an operator is the owner, who
may do everything, and checks every other role.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from ledger.store.engine import is_postgres
from migrations.schema.history import schema_at

_GRANTED: Final = text(
    "SELECT r.relname, coalesce(w.rolname, 'everybody'), a.privilege_type FROM pg_catalog.pg_class r "
    "LEFT JOIN pg_catalog.pg_attribute c ON c.attrelid = r.oid AND c.attacl IS NOT NULL "
    "CROSS JOIN LATERAL pg_catalog.aclexplode("
    "coalesce(r.relacl, pg_catalog.acldefault('r', r.relowner)) || coalesce(c.attacl, '{}')) a "
    "LEFT JOIN pg_catalog.pg_roles w ON w.oid = a.grantee "
    "WHERE r.relnamespace = 'public'::regnamespace AND r.relkind IN ('r', 'p') AND a.grantee <> r.relowner"
)


def wrong_grants(connection: Connection, revision: str) -> list[str]:
    """Privileges that a role has and must not have, or lacks and needs, as sentences in order; empty on SQLite.

    Roles other than the application's may be granted to read, and nothing else.
    """
    if not is_postgres(connection):
        return []
    granted = {(str(table), str(who), str(right)) for table, who, right in connection.execute(_GRANTED)}
    due = schema_at(revision, "postgresql").grants
    more = [f"{who} may {right} {table}" for table, who, right in granted - due if right != "SELECT"]
    less = [f"{who} may not {right} {table}" for table, who, right in due - granted]
    return sorted(more + less)
