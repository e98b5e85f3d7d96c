"""The status of a book, reported without verification, and the full check that verifies everything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, create_engine

from client.cli.command_group import Result
from ledger.audit.replay import VerificationFailed, verify
from ledger.audit.verification_report import VerificationReport
from ledger.command_line.verbosity import is_verbose
from ledger.domain.gate import Gate
from ledger.store.snapshot import Snapshot
from ledger.store.successor_book import successor_of
from ledger.store.tables import SCHEMA_REVISION, metadata
from ledger.verifier import Checkpoint, LogKey
from migrations.connect.book_location import Place
from migrations.connect.errors import Absent, SchemaUnknown
from migrations.connect.exclusive_access import Limits, connected, is_held
from migrations.schema.revision_sql import schema_at
from migrations.schema.revisions import bring_to, holds_book, missing_triggers, revision_of, wrong_grants
from migrations.transfer.log_check import Step, check_trusted, head_of


def status_of(place: Place, limits: Limits) -> Result:
    """The status of a book, unverified.

    Raises:
        Absent: if there is no book.
        NotDone: if it cannot be read, or is not a book.
        VerificationFailed: if its tree lacks a node.
    """
    with _open_book(place, limits) as (connection, revision):
        engine, schema, head = connection.dialect, schema_at(revision, connection.dialect.name), head_of(connection)
        version = ".".join(str(part) for part in engine.server_version_info or ())
        missing, wrong = missing_triggers(connection, revision), wrong_grants(connection, revision)
        successor = successor_of(connection) if "seal" in schema.tables else None
        value = {
            "book": place.display_name,
            "checkpoint": head.note,
            "engine": f"{'SQLite' if engine.name == 'sqlite' else 'PostgreSQL'} {version}",
            "entries": head.size,
            "held": is_held(place, connection),
            "moved_to": None if successor is None else successor.book,
            "origin": head.origin,
            "rights_wrong": wrong,
            "root": head.root.hex(),
            "schema": revision,
            "schema_newest": SCHEMA_REVISION,
            "triggers": len(schema.triggers),
            "triggers_missing": missing,
        }
    newest = "the newest" if revision == SCHEMA_REVISION else f"and {SCHEMA_REVISION} is the newest"
    lost = f", {', '.join(missing)} missing or changed" if missing else ", all as expected"
    lines = {
        "book": f"{place.display_name} ({value['engine']})",
        "schema": f"{revision}, {newest}",
        "log": f"{head.size} entries" + (f" of {head.origin}" if head.origin else ""),
        **({"root": head.root.hex()} if is_verbose() else {}),
        "triggers": f"{len(schema.triggers)}{lost}",
        **({} if engine.name == "sqlite" else {"rights": "; ".join(wrong) or "as granted"}),
        "writer": "a process has it open" if value["held"] else "no process has it open",
        **({} if successor is None else {"moved": f"to {successor.book}; it takes no more entries"}),
    }
    return Result(value, "\n".join(f"{name:<10}{text}" for name, text in lines.items()))


@contextmanager
def _open_book(place: Place, limits: Limits) -> Iterator[tuple[Connection, str]]:
    """A transaction that reads a book, and its revision. Raises: Absent, SchemaUnknown, NotDone."""
    if not holds_book(place, limits):
        raise Absent(f"there is no book at {place.display_name}: run 'epsilon db upgrade' to make one")
    with connected(place, writes=False, limits=limits) as connection:
        yield connection, str(revision_of(connection, place.display_name))


def revision_at(place: Place, limits: Limits | None = None) -> str | None:
    """The schema of a book, None if there is none. Raises: SchemaUnknown, NotDone."""
    if not holds_book(place, limits):
        return None
    with connected(place, writes=False, limits=limits) as connection:
        return revision_of(connection, place.display_name)


def check_book(  # noqa: PLR0913 - what to check, against what, who decides, and how long it may take
    place: Place, key: LogKey, kept: Checkpoint | None, step: Step, *, gate: Gate | None, limits: Limits
) -> VerificationReport:
    """Check everything: the engine's own integrity, schema, triggers; then every entry, by replay.

    Args:
        place: the book.
        key: the log's public key, kept outside the book.
        kept: a checkpoint of this log that was kept outside it, its signature checked.
        step: called with how many entries are replayed, and of how many.
        gate: decides again what the policy decided; without one, the recorded verdicts are used.
        limits: how long to wait.

    Raises:
        Absent, SchemaUnknown: if there is no book, or not at the newest schema.
        VerificationFailed: naming the first error.
    """
    with _open_book(place, limits) as (connection, revision):
        if revision != SCHEMA_REVISION:
            raise SchemaUnknown(f"{place.display_name} is not at schema {SCHEMA_REVISION}: run 'epsilon db upgrade'")
        head_of(connection)
        _check_engine(connection)
        _check_schema(connection)
        if kept is not None:
            check_trusted(connection, kept, place.display_name)
        return verify(Snapshot(connection), key, step, gate=gate)


def _check_engine(connection: Connection) -> None:
    if connection.dialect.name == "sqlite":
        report = [str(row[0]) for row in connection.exec_driver_sql("PRAGMA integrity_check(1)")]
        if report != ["ok"]:
            raise VerificationFailed(None, f"SQLite finds the file damaged: {' '.join(report[0].split())}")


def _check_schema(connection: Connection) -> None:
    missing = missing_triggers(connection, SCHEMA_REVISION)
    if missing:
        raise VerificationFailed(None, f"the book lacks the trigger {missing[0]}")
    wrong = wrong_grants(connection, SCHEMA_REVISION)
    if wrong:
        raise VerificationFailed(None, f"grants are not those of the schema: {wrong[0]}")
    changes = compare_metadata(MigrationContext.configure(connection), metadata)
    if changes:
        raise VerificationFailed(None, f"the schema is not that of revision {SCHEMA_REVISION}: {str(changes[0])[:200]}")
    if connection.dialect.name == "sqlite":
        has, should = _objects(connection), _fresh_objects()
        for name in sorted(has.keys() | should.keys()):
            if has.get(name) != should.get(name):
                raise VerificationFailed(None, f"the schema is not that of revision {SCHEMA_REVISION}: {name}")


def _objects(connection: Connection) -> dict[str, str]:
    rows = connection.exec_driver_sql("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")
    # SQL that was printed has other indentation than SQL that was run.
    return {f"{kind} {name}": " ".join(str(text).split()) for kind, name, text in rows}


def _fresh_objects() -> dict[str, str]:
    """The schema that SQLite reports for a new book."""
    engine = create_engine("sqlite://")
    try:
        with engine.begin() as connection:
            bring_to(connection, SCHEMA_REVISION, "a fresh book")
            return _objects(connection)
    finally:
        engine.dispose()
