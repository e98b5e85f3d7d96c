"""Who may do what in a PostgreSQL book, as its tables say, beside what the migrations granted.

A service looks at its own role when it opens the book (``ledger.roles``); an operator is the owner, who may do
everything, and looks at everybody else's.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from ledger.store.database_grants import REVISION_TABLE, WRITER
from ledger.store.engine import is_postgres
from ledger.store.tables import APPEND_ONLY
from migrations.schema.additions import tables_at

_GRANTED: Final = text(
    "SELECT r.relname, coalesce(w.rolname, 'everybody'), a.privilege_type FROM pg_catalog.pg_class r "
    "LEFT JOIN pg_catalog.pg_attribute c ON c.attrelid = r.oid AND c.attacl IS NOT NULL "
    "CROSS JOIN LATERAL pg_catalog.aclexplode("
    "coalesce(r.relacl, pg_catalog.acldefault('r', r.relowner)) || coalesce(c.attacl, '{}')) a "
    "LEFT JOIN pg_catalog.pg_roles w ON w.oid = a.grantee "
    "WHERE r.relnamespace = 'public'::regnamespace AND r.relkind IN ('r', 'p') AND a.grantee <> r.relowner"
)


def wrong_grants(connection: Connection, revision: str) -> list[str]:
    """What somebody may do and must not, and what the application may not do and must; in order, empty on SQLite.

    Others than the application may be granted to read, and nothing else.
    """
    if not is_postgres(connection):
        return []
    granted = {(str(table), str(who), str(right)) for table, who, right in connection.execute(_GRANTED)}
    due = {(REVISION_TABLE, WRITER, "SELECT")}
    for table in tables_at(revision):
        rights = ("SELECT", "INSERT") if table.name in APPEND_ONLY else ("SELECT", "INSERT", "UPDATE")
        due |= {(table.name, WRITER, right) for right in rights}
    more = [f"{who} may {right} {table}" for table, who, right in granted - due if right != "SELECT"]
    less = [f"{who} may not {right} {table}" for table, who, right in due - granted]
    return sorted(more + less)
