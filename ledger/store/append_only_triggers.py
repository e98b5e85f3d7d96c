"""Append-only, enforced by the database: what was written cannot be updated, deleted, truncated or replaced.

SQLite deletes without firing DELETE triggers under ``INSERT OR REPLACE`` unless recursive triggers are on, so a
trigger before each insert refuses a row whose key, or whose other unique column, is there already. PostgreSQL knows
no such replacement, but TRUNCATE, and sessions in which ordinary triggers are silent: its triggers fire ALWAYS. On
both, entries must follow one another without a gap, which also stops a writer that has lost its lock unnoticed;
and a sealed book takes no more entries.

Nothing is inserted ahead of the entries, where it could never be removed again and no writer could go on: a checkpoint
is newer than those before it and over entries that are there, a node of the tree is complete, a seal is over all
entries. So a writer inserts entries first, then nodes, then the checkpoint.

The migrations make the triggers (``migrations/versions``); what is here is what a book is checked to have.

A trigger of a stranger runs inside the book's own transactions with the book's own rights: one that sets an account to
zero after each commit gives a whole budget back. So a book with a foreign trigger is not opened, nor one with a rule,
row security or a child table, which could change it unseen too.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from ledger.store.engine import is_postgres
from ledger.store.tables import APPEND_ONLY

GUARD: Final = "epsilon_guard"
"""The schema of the triggers' functions on PostgreSQL, and the role that owns it where there is one to make it."""

_KEYS: Final = {
    "entry": "position = NEW.position OR id = NEW.id",
    "tree_node": "level = NEW.level AND position = NEW.position",
    "document": "digest = NEW.digest",
    "checkpoint": "tree_size = NEW.tree_size",
    "cosignature": "tree_size = NEW.tree_size AND vkey = NEW.vkey",
    "seal": "position = NEW.position",
}
_SIZE: Final = "(SELECT coalesce(max(position), -1) + 1 FROM entry)"
"""How many entries there are."""
_BOUND: Final = {
    "checkpoint": f"NEW.tree_size > (SELECT coalesce(max(tree_size), 0) FROM checkpoint) AND NEW.tree_size <= {_SIZE}",  # noqa: S608 - a constant
    "tree_node": f"NEW.level BETWEEN 0 AND 62 AND NEW.position >= 0 AND NEW.position < {_SIZE} >> NEW.level",
    "seal": f"NEW.tree_size = {_SIZE}",
}
"""What a row states of the entries, which must be true when it is inserted."""


def sqlite_triggers() -> dict[str, str]:
    """Each trigger's name and statement."""
    made = {}
    for table in APPEND_ONLY:
        for verb in ("UPDATE", "DELETE"):
            name = f"{table}_no_{verb.lower()}"
            made[name] = (
                f"CREATE TRIGGER {name} BEFORE {verb} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
            )
        made[f"{table}_no_replace"] = (
            f"CREATE TRIGGER {table}_no_replace BEFORE INSERT ON {table} "  # noqa: S608 - constants above
            f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {_KEYS[table]}) "
            f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
        )
    made["entry_no_gap"] = (
        "CREATE TRIGGER entry_no_gap BEFORE INSERT ON entry "
        "WHEN NEW.position IS NOT (SELECT coalesce(max(position), -1) + 1 FROM entry) "
        "BEGIN SELECT RAISE(ABORT, 'entries follow one another without a gap'); END"
    )
    for table, condition in _BOUND.items():
        made[f"{table}_not_ahead"] = (
            f"CREATE TRIGGER {table}_not_ahead BEFORE INSERT ON {table} WHEN ({condition}) IS NOT TRUE "
            f"BEGIN SELECT RAISE(ABORT, '{table} is not of the entries that are there'); END"
        )
    made["entry_not_sealed"] = (
        "CREATE TRIGGER entry_not_sealed BEFORE INSERT ON entry WHEN EXISTS (SELECT 1 FROM seal) "
        "BEGIN SELECT RAISE(ABORT, 'the book was moved, and takes no more entries'); END"
    )
    return made


# Positions are unique and not negative, so an entry whose predecessor is there is the next one.
_BODIES: Final = {
    "refuse_change": """
BEGIN
  RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
END
""",
    "refuse_gap": """
BEGIN
  IF NEW.position <> 0 AND NOT EXISTS (SELECT FROM public.entry WHERE position = NEW.position - 1) THEN
    RAISE EXCEPTION 'entries follow one another without a gap' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NEW;
END
""",
    "refuse_checkpoint_ahead": """
DECLARE
  entries CONSTANT bigint := (SELECT coalesce(max(position), -1) + 1 FROM public.entry);
  first CONSTANT bigint := (SELECT min(tree_size) FROM added);
BEGIN
  IF EXISTS (SELECT FROM added WHERE tree_size > entries)
  OR (SELECT count(*) FROM public.checkpoint WHERE tree_size >= first) <> (SELECT count(*) FROM added) THEN
    RAISE EXCEPTION '% is not of the entries that are there', TG_TABLE_NAME
      USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NULL;
END
""",
    "refuse_node_ahead": """
DECLARE
  entries CONSTANT bigint := (SELECT coalesce(max(position), -1) + 1 FROM public.entry);
BEGIN
  IF EXISTS (
    SELECT FROM added
    WHERE CASE WHEN level BETWEEN 0 AND 62 THEN position NOT BETWEEN 0 AND (entries >> level::integer) - 1 ELSE true END
  ) THEN
    RAISE EXCEPTION '% is not of the entries that are there', TG_TABLE_NAME
      USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NULL;
END
""",
    "refuse_seal_ahead": """
BEGIN
  IF EXISTS (
    SELECT FROM added WHERE tree_size <> (SELECT coalesce(max(entry.position), -1) + 1 FROM public.entry)
  ) THEN
    RAISE EXCEPTION '% is not of the entries that are there', TG_TABLE_NAME
      USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NULL;
END
""",
    "refuse_sealed": """
BEGIN
  IF EXISTS (SELECT FROM public.seal) THEN
    RAISE EXCEPTION 'the book was moved, and takes no more entries' USING ERRCODE = 'integrity_constraint_violation';
  END IF;
  RETURN NULL;
END
""",
}
# pg_trigger.tgtype: row 1, before 2, insert 4, delete 8, update 16, truncate 32.
_CHANGED: Final = (1 | 2 | 8 | 16, "refuse_change")
_TRUNCATED: Final = (2 | 32, "refuse_change")
_INSERTED: Final = (1 | 2 | 4, "refuse_gap")
_SEALED: Final = (2 | 4, "refuse_sealed")
_ADDED: Final = 4
"""After a statement that inserts; the function reads the new rows as the table ``added``."""


def postgres_triggers() -> dict[str, tuple[str, tuple[int, str]]]:
    """Each trigger's name, its table, when it fires (``pg_trigger.tgtype``), and its function."""
    made = {}
    for table in APPEND_ONLY:
        made[f"{table}_no_change"] = table, _CHANGED
        made[f"{table}_no_truncate"] = table, _TRUNCATED
    made["entry_no_gap"] = "entry", _INSERTED
    made["checkpoint_not_ahead"] = "checkpoint", (_ADDED, "refuse_checkpoint_ahead")
    made["tree_node_not_ahead"] = "tree_node", (_ADDED, "refuse_node_ahead")
    made["seal_not_ahead"] = "seal", (_ADDED, "refuse_seal_ahead")
    made["entry_not_sealed"] = "entry", _SEALED
    return made


def altered_trigger(connection: Connection) -> str | None:
    """The name of the first trigger that is missing, disabled or altered; None if there is none."""
    return next(iter(altered_triggers(connection)), None)


def altered_triggers(connection: Connection) -> list[str]:
    """The names of all such triggers, in order."""
    return _altered_in_postgres(connection) if is_postgres(connection) else _altered_in_sqlite(connection)


def _altered_in_sqlite(connection: Connection) -> list[str]:
    found = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    have = {str(name): str(statement) for name, statement in found}
    return [name for name, statement in sqlite_triggers().items() if have.get(name) != statement]


_TRIGGERS: Final = text(
    "SELECT t.tgname, r.relname, t.tgtype, p.proname, p.prosrc, t.tgnewtable FROM pg_catalog.pg_trigger t "
    "JOIN pg_catalog.pg_class r ON r.oid = t.tgrelid JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid "
    "JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace "
    "WHERE NOT t.tgisinternal AND r.relnamespace = 'public'::regnamespace AND n.nspname = :guard "
    "AND t.tgenabled = 'A' AND t.tgqual IS NULL AND t.tgattr = '' AND t.tgoldtable IS NULL"
)


def _altered_in_postgres(connection: Connection) -> list[str]:
    have = {str(name): tuple(rest) for name, *rest in connection.execute(_TRIGGERS, {"guard": GUARD})}
    return [
        name
        for name, (table, (kind, function)) in postgres_triggers().items()
        if have.get(name) != (table, kind, function, _BODIES[function], "added" if kind == _ADDED else None)
    ]


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
