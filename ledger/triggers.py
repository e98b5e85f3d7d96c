"""Append-only, enforced by the database: what was written cannot be updated, deleted or replaced.

SQLite deletes without firing DELETE triggers under ``INSERT OR REPLACE`` unless recursive triggers are on, so a
trigger before each insert refuses a row whose key, or whose other unique column, is there already. Entries
must also follow one another without a gap.
"""

from __future__ import annotations

from typing import Final

from ledger.tables import APPEND_ONLY

_KEYS: Final = {
    "entry": "position = NEW.position OR id = NEW.id",
    "tree_node": "level = NEW.level AND position = NEW.position",
    "document": "digest = NEW.digest",
    "checkpoint": "tree_size = NEW.tree_size",
}


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
    return made
