"""All that a database says of its own schema, to be compared with another's."""

from __future__ import annotations

from typing import Final

from ledger.store.engine import engine_of
from tests.migrations.places import Spot

_SQLITE: Final = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
_POSTGRES: Final = """
SELECT table_name, column_name, data_type, is_nullable, column_default, ordinal_position
  FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2;
SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
  FROM pg_constraint WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2;
SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1, 2;
SELECT tgrelid::regclass::text, tgname, tgenabled, pg_get_triggerdef(oid)
  FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1, 2;
SELECT proname, prosrc, proowner::regrole::text, proacl::text
  FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE nspname = 'epsilon_guard' ORDER BY 1;
SELECT relname, relkind, relowner::regrole::text, relacl::text
  FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY 1
"""


def schema_of(place: Spot) -> list[list[tuple[object, ...]]]:
    """Tables, columns, constraints, indexes, triggers, functions and rights, in a fixed order and one spacing."""
    engine = engine_of(place.url, writes=False)
    try:
        with engine.begin() as connection:
            requested = _SQLITE if connection.dialect.name == "sqlite" else _POSTGRES
            return [
                [tuple(map(_spaced, row)) for row in connection.exec_driver_sql(one)] for one in requested.split(";")
            ]
    finally:
        engine.dispose()


def _spaced(value: object) -> object:
    return " ".join(value.split()) if isinstance(value, str) else value
