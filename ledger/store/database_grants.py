"""Who may do what in a PostgreSQL book: the owner upgrades it, the application appends to it.

The owner is whoever runs ``epsilon db upgrade``. The application's logins are members of ``epsilon_writer``, which may
read everything, append to the append-only tables, and write the projections; nobody else is granted anything. The
triggers' functions belong to ``epsilon_guard``, which nobody can log in as, where a superuser upgrades; so that the
owner of the tables cannot quietly replace what guards them. SQLite has no roles.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sqlalchemy import Connection, text

from ledger.store.append_only_triggers import GUARD
from ledger.store.engine import is_postgres
from ledger.store.tables import APPEND_ONLY

WRITER: Final = "epsilon_writer"
REVISION_TABLE: Final = "alembic_version"


def grants(tables: Iterable[str], functions: Iterable[str]) -> list[str]:
    """What makes the roles, unless they are there, and gives them their rights to these tables and functions."""
    made = [
        _role(WRITER),
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
        f"GRANT USAGE ON SCHEMA public TO {WRITER}",
        f"REVOKE ALL ON {REVISION_TABLE} FROM PUBLIC, {WRITER}",
        f"GRANT SELECT ON {REVISION_TABLE} TO {WRITER}",
    ]
    for table in tables:
        rights = "SELECT, INSERT" if table in APPEND_ONLY else "SELECT, INSERT, UPDATE"
        made += [f"REVOKE ALL ON {table} FROM PUBLIC, {WRITER}", f"GRANT {rights} ON {table} TO {WRITER}"]
    return [*made, _guarded(functions)]


def _role(name: str) -> str:
    """Roles are the whole server's, so another book may have made this one, even at this moment."""
    return (
        f"DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = '{name}') THEN "
        f"CREATE ROLE {name} NOLOGIN; END IF; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
    )


def _guarded(functions: Iterable[str]) -> str:
    owned = " ".join(f"ALTER FUNCTION {GUARD}.{name}() OWNER TO {GUARD};" for name in functions)
    return (
        "DO $$ BEGIN IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN "  # noqa: S608
        f"BEGIN CREATE ROLE {GUARD} NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END; "
        f"{owned} ALTER SCHEMA {GUARD} OWNER TO {GUARD}; END IF; END $$"
    )


_EXCESS: Final = text(
    "SELECT r.relname, pg_has_role(session_user, r.relowner, 'MEMBER') AS owns, "
    "has_table_privilege(session_user, r.oid, 'UPDATE, DELETE, TRUNCATE, TRIGGER') "
    "OR has_any_column_privilege(session_user, r.oid, 'UPDATE') AS changes, "
    "has_table_privilege(session_user, r.oid, 'SELECT') "
    "AND has_table_privilege(session_user, r.oid, 'INSERT') AS needs "
    "FROM pg_catalog.pg_class r WHERE r.relnamespace = 'public'::regnamespace AND r.relname = ANY(:tables) "
    "ORDER BY r.relname"
)


def wrong_rights(connection: Connection) -> str | None:
    """What a session may do that would let it change what is recorded, or may not do and must; None if it is right."""
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
