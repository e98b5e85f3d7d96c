"""What somebody added to the schema and what could change a book unseen: triggers, rules, row security, child tables.

A trigger of a stranger runs inside the book's own transactions with the book's own rights: one that sets an account to
zero after each commit gives a whole budget back. So a book that has such an object is not opened.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from ledger.store.append_only_triggers import GUARD, postgres_triggers, sqlite_triggers
from ledger.store.engine import is_postgres

# An internal trigger is one that PostgreSQL made for a constraint; "_RETURN" is the rule that makes a view.
_IN_POSTGRES: Final = text(
    "SELECT 'the trigger ' || t.tgname || ' on the table ' || r.relname FROM pg_catalog.pg_trigger t "
    "JOIN pg_catalog.pg_class r ON r.oid = t.tgrelid JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid "
    "JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE r.relnamespace = 'public'::regnamespace "
    "AND NOT t.tgisinternal AND NOT (t.tgname = ANY(:ours) AND n.nspname = :guard) "
    "UNION ALL SELECT 'the rule ' || w.rulename || ' on the table ' || r.relname FROM pg_catalog.pg_rewrite w "
    "JOIN pg_catalog.pg_class r ON r.oid = w.ev_class "
    "WHERE r.relnamespace = 'public'::regnamespace AND w.rulename <> '_RETURN' "
    "UNION ALL SELECT 'row security on the table ' || r.relname FROM pg_catalog.pg_class r "
    "WHERE r.relnamespace = 'public'::regnamespace AND (r.relrowsecurity OR r.relforcerowsecurity) "
    "UNION ALL SELECT 'the child ' || k.relname || ' of the table ' || r.relname FROM pg_catalog.pg_inherits i "
    "JOIN pg_catalog.pg_class r ON r.oid = i.inhparent JOIN pg_catalog.pg_class k ON k.oid = i.inhrelid "
    "WHERE r.relnamespace = 'public'::regnamespace AND r.relkind IN ('r', 'p') "
    "ORDER BY 1"
)


def foreign_object(connection: Connection) -> str | None:
    """The first object in the schema that the migrations did not make, in words; None if there is none."""
    if is_postgres(connection):
        ours = {"ours": list(postgres_triggers()), "guard": GUARD}
        found = connection.execute(_IN_POSTGRES, ours).scalars().first()
        return None if found is None else str(found)
    rows = connection.exec_driver_sql("SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger' ORDER BY name")
    known = sqlite_triggers()
    return next((f"the trigger {name} on the table {table}" for name, table in rows if name not in known), None)
