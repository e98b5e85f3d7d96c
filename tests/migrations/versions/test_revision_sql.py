"""The history of the schema: what its frozen SQL makes is what the program's tables say, and it can be continued."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from ledger.store.append_only_triggers import altered_triggers, postgres_triggers, sqlite_triggers
from ledger.store.engine import engine_of
from ledger.store.tables import APPEND_ONLY, SCHEMA_REVISION, metadata
from migrations.schema.revision_sql import HISTORY, schema_at
from migrations.schema.revisions import bring_to, known_revisions
from tests.migrations.places import Spot, db
from tests.migrations.schema.schema_dump import schema_of

READ_ONLY = ("seal", "epoch")
"""What the application does not write on PostgreSQL."""
NOTE = '''"""A note on each contract."""

from migrations.schema.revision_sql import run_sql

revision = "9998"
down_revision = "0008"


def upgrade() -> None:
    """Add the column."""
    run_sql(__file__, "upgrade")


def downgrade() -> None:
    """Drop it."""
    run_sql(__file__, "downgrade")
'''


def tables_of(place: Spot) -> list[list[tuple[object, ...]]]:
    """Tables, columns, types, constraints and indexes, without what only migrations make: triggers and grants."""
    found = schema_of(place)
    if place.engine == "sqlite":
        return [[row for row in found[0] if row[0] in {"table", "index"} and "alembic" not in str(row[1])]]
    return [[row for row in part if row[0] != "alembic_version"] for part in found[:3]]


def test_the_history_makes_the_tables_of_the_program(place: Spot, twin: Spot) -> None:
    """Columns in their order, types, constraints and indexes: as SQLAlchemy makes them of the live metadata."""
    assert db("upgrade", place.book).code == 0
    engine = create_engine(engine_of(twin.url, writes=True).url)
    metadata.create_all(engine)
    engine.dispose()
    assert tables_of(place) == tables_of(twin)
    assert set(metadata.tables) == schema_at(SCHEMA_REVISION, place.engine).tables


def test_the_history_makes_the_triggers_and_grants_of_the_program(place: Spot) -> None:
    """Each trigger as the program checks it, and no other; the application appends, and updates projections alone."""
    assert db("upgrade", place.book).code == 0
    engine = engine_of(place.url, writes=False)
    with engine.begin() as connection:
        assert altered_triggers(connection) == []
    engine.dispose()
    schema = schema_at(SCHEMA_REVISION, place.engine)
    triggers = sqlite_triggers() if place.engine == "sqlite" else postgres_triggers()
    assert schema.triggers == set(triggers)
    rights = {(name, "SELECT") for name in (*metadata.tables, "alembic_version")}
    rights |= {(name, "INSERT") for name in metadata.tables if name not in READ_ONLY}
    rights |= {(name, "UPDATE") for name in metadata.tables if name not in (*APPEND_ONLY, *READ_ONLY)}
    expected = {(name, "epsilon_writer", right) for name, right in rights}
    assert schema.grants == (expected if place.engine == "postgresql" else set())


def test_a_revision_reads_nothing_of_the_program() -> None:
    """A revision imports what runs its SQL, and no table, trigger or grant of today."""
    for path in HISTORY.glob("v*.py"):
        assert "ledger" not in path.read_text(), path


@pytest.fixture
def continued(tmp_path: Path) -> Path:
    """A copy of the history with one more revision, which adds a column."""
    history = tmp_path / "versions 100%"
    shutil.copytree(HISTORY, history, ignore=shutil.ignore_patterns("__pycache__"))
    (history / "v9998_note.py").write_text(NOTE)
    (history / "v9998_note").mkdir()
    for engine in ("sqlite", "postgresql"):
        (history / "v9998_note" / f"upgrade.{engine}.sql").write_text(
            "ALTER TABLE contract ADD COLUMN note TEXT;\n\n"
            "CREATE INDEX contract_note ON contract (note) WHERE note <> 'a:b 10%; none';\n"
        )
        (history / "v9998_note" / f"downgrade.{engine}.sql").write_text(
            "DROP INDEX contract_note;\n\nALTER TABLE contract DROP COLUMN note;\n"
        )
    return history


def test_a_revision_adds_a_column(book: Spot, continued: Path) -> None:
    """Up, down and up again with the rows as they were; the revisions before it are not affected."""
    before, rows = schema_of(book), book.rows()
    engine = engine_of(book.url, writes=True)
    assert known_revisions(continued) == [*known_revisions(), "9998"]
    for revision, columns in (("9998", 1), (SCHEMA_REVISION, 0), ("9998", 1)):
        with engine.begin() as connection:
            bring_to(connection, revision, book.book, continued)
            names = [str(key) for key in connection.exec_driver_sql("SELECT * FROM contract").keys()]  # noqa: SIM118 - of a result
        assert names.count("note") == columns
        assert book.rows() == rows
        assert (schema_of(book) == before) == (columns == 0)
    engine.dispose()
