"""What the database itself checks of a book, whatever the entries say: pages, rows, indexes, the text of its schema.

A broken index or page changes no entry and no root, but it hides rows from every query that looks them up: a receipt
cannot be made, a command's id is not found. SQLite checks every page, row and index (``PRAGMA integrity_check``).
PostgreSQL does if a superuser has added its extension amcheck, and lets the role that verifies run it.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    create_engine,
    inspect,
    text,
)
from sqlalchemy.exc import DatabaseError, SQLAlchemyError

from ledger.domain.gate import POLICY_DOCUMENT_BYTES_MAX
from ledger.log.verification_findings import VerificationFailed
from ledger.store.append_only_triggers import foreign_object, sqlite_triggers
from ledger.store.engine import Executor, is_postgres
from ledger.store.tables import ENTRY, SCHEMA_REVISION, metadata

_AMCHECK: Final = text(
    "SELECT n.nspname, has_schema_privilege(n.oid, 'USAGE') AND has_function_privilege(p.oid, 'EXECUTE') "
    "FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace "
    "JOIN pg_catalog.pg_proc p ON p.pronamespace = n.oid AND p.proname = 'bt_index_check' AND p.pronargs = 2 "
    "WHERE e.extname = 'amcheck'"
)
_INDEXES: Final = text(
    "SELECT c.oid, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_am a ON a.oid = c.relam "
    "WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'i' AND a.amname = 'btree' ORDER BY c.relname"
)
_REVISIONS: Final = MetaData()
Table(
    "alembic_version",
    _REVISIONS,
    Column("version_num", String(32)),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
_REVISION: Final = text("SELECT version_num FROM alembic_version")
_FOUR_DIGITS: Final = re.compile(r"[0-9]{4}")
_FIRST: Final = "0001"
_ADDED: Final = {
    "0002": "seal",
    "0003": "epoch",
    "0004": "key_terms",
    "0006": "stream_version",
    "0007": "extended_quorum",
    "0008": "audit",
}
"""By revision, a table that books have since."""
_CHANGED: Final = {"0005": ("document", f"<={POLICY_DOCUMENT_BYTES_MAX}", "<=262144")}
"""By revision, a table that is declared otherwise since: what it says, and what it said before."""
_Schema = dict[tuple[str, str], tuple[str, str]]
"""By kind and name of an object, its table and its text."""
_KINDS: Final = ("table", "index", "trigger", "view")
_HEADER_BYTES: Final = 24
_WORDS_OF_A_BOOK: Final = (b"CREATE TABLE entry", b'{"actor":"did:')
_SHORT_READ: Final = 10 | 2 << 8
_DAMAGED: Final = frozenset({1, 11, 20, 24, 26, _SHORT_READ})
"""Result codes of SQLite: error (of the schema's text), corrupt, mismatch, format, not a database; and a short read."""


def check_integrity(connection: Executor) -> str:
    """Run the database's own check of the whole book, in the transaction that a connection is in.

    Returns:
        Why it was not run; empty if it was.

    Raises:
        VerificationFailed: with the first thing that the database finds wrong.
    """
    assert isinstance(connection, Connection)
    if is_postgres(connection):
        return _check_postgres(connection)
    return _check_report(connection, _sqlite_report(connection))


@contextmanager
def integrity_beside(connection: Executor) -> Iterator[Callable[[], str]]:
    """Begin the same check of an SQLite file in a thread, which takes another processor than the work of the block.

    It reads by a connection of its own, so of a book that is being written it may see later entries too. On PostgreSQL,
    and where the connection may have written, the check runs when it is asked for.

    Returns:
        Waits for the check: what :func:`check_integrity` returns and raises.
    """
    assert isinstance(connection, Connection)
    if is_postgres(connection) or not connection.exec_driver_sql("PRAGMA query_only").scalar():
        yield partial(check_integrity, connection)
        return
    with connection.engine.connect() as other, ThreadPoolExecutor(1, "book-integrity") as pool:
        report = pool.submit(_sqlite_report, other)
        driver: Any = other.connection.driver_connection
        try:
            yield lambda: _check_report(connection, report.result())
        finally:
            # What is not over is waited for by no one.
            driver.interrupt()


def _sqlite_report(connection: Connection) -> str:
    return str(connection.exec_driver_sql("PRAGMA integrity_check(1)").scalars().all()[0])


def _check_report(connection: Connection, report: str) -> str:
    if report != "ok":
        raise VerificationFailed(None, f"SQLite finds the file damaged: {' '.join(report.split())}")
    _check_schema_text(connection)
    return ""


def _check_postgres(connection: Connection) -> str:
    found = connection.execute(_AMCHECK).first()
    if found is None:
        return "the database has no extension amcheck"
    schema, allowed = found
    if not allowed:
        return "this role may not run amcheck"
    quoted = connection.dialect.identifier_preparer.quote(str(schema))
    for index, name in connection.execute(_INDEXES).all():
        try:
            connection.execute(text(f"SELECT {quoted}.bt_index_check(CAST(:index AS oid), true)"), {"index": index})
        except DatabaseError as error:
            if not _is_corruption(error):
                raise
            raise VerificationFailed(None, f"PostgreSQL finds the index {name} damaged: {_first_line(error)}") from None
    return ""


def check_revision(connection: Executor) -> None:
    """Check a revision that this program does not read: whether the schema can be of another than its own.

    Raises:
        VerificationFailed: if the revision is none, or the schema contradicts it. A book of a newer program is sound.
    """
    assert isinstance(connection, Connection)
    tables = set(inspect(connection).get_table_names())
    if ENTRY.name not in tables:
        return
    revision = str(connection.execute(_REVISION).scalar())[:40]
    if not _FOUR_DIGITS.fullmatch(revision) or revision < _FIRST:
        raise VerificationFailed(None, f"the schema says that its revision is {revision!r}, which is none")
    later = [name for since, name in _ADDED.items() if since > revision and name in tables]
    if later:
        raise VerificationFailed(None, f"the schema says that its revision is {revision}, and has the table {later[0]}")
    if revision > SCHEMA_REVISION and _is_own(connection):
        raise VerificationFailed(None, f"the schema is that of revision {SCHEMA_REVISION}, and says another")


def _is_own(connection: Connection) -> bool:
    """Whether a schema has what this program declares, and no more: that of a newer program differs somewhere."""
    if not is_postgres(connection):
        have = _schema_of(connection)
        return _declared(have) == have
    found = inspect(connection)
    declared = {one.name: one.columns.keys() for one in (*metadata.sorted_tables, *_REVISIONS.sorted_tables)}
    have_columns = {name: [column["name"] for column in found.get_columns(name)] for name in found.get_table_names()}
    return have_columns == declared and foreign_object(connection) is None


def _declared(have: _Schema) -> _Schema:
    """The tables and indexes of a new book, and those of its triggers that a schema has."""
    fresh = create_engine("sqlite://")
    try:
        with fresh.begin() as other:
            metadata.create_all(other)
            _REVISIONS.create_all(other)
            declared = _schema_of(other)
    finally:
        fresh.dispose()
    for name, statement in sqlite_triggers().items():
        if ("trigger", name) in have:
            declared["trigger", name] = statement.split(" ON ")[1].split()[0], _words(statement)
    return declared


def _check_schema_text(connection: Connection) -> None:
    """Compare tables, indexes and triggers with a new book's; whether a trigger is missing, ``db check`` says."""
    have = _schema_of(connection)
    declared = _declared(have)
    revision = str(connection.execute(_REVISION).scalar())[:40]
    if revision != SCHEMA_REVISION:
        if all(have.get(key) == described for key, described in declared.items()):
            raise VerificationFailed(None, f"the schema is that of revision {SCHEMA_REVISION}, and says another")
        declared = _declared_at(revision, declared, have)
    for (kind, name), described in declared.items():
        if have.get((kind, name)) != described:
            raise VerificationFailed(None, f"the {kind} {name} is not as this program declares it")
    for kind, name in have:
        if kind not in _KINDS:
            raise VerificationFailed(None, f"the schema holds {name}, a {kind}: SQLite knows none")
    foreign = foreign_object(connection)
    if foreign is not None:
        raise VerificationFailed(None, f"{foreign} is not this program's")


def _declared_at(revision: str, declared: _Schema, have: _Schema) -> _Schema:
    """What an older book has of it: it lacks what was added since, and has what was changed as it was before."""
    later = {name for since, name in _ADDED.items() if since > revision}
    if added := sorted(name for name in later if ("table", name) in have):
        raise VerificationFailed(None, f"the schema says that its revision is {revision}, and has the table {added[0]}")
    older = {key: described for key, described in declared.items() if ("table", described[0]) in have}
    for since, (table, now, before) in _CHANGED.items():
        if since > revision:
            older["table", table] = table, older["table", table][1].replace(now, before)
    return older


def _schema_of(connection: Connection) -> _Schema:
    """The table and the text of each object of an SQLite file, by its kind and name."""
    found = connection.exec_driver_sql("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master")
    return {(str(kind), str(name)): (str(table), _words(str(statement))) for kind, name, table, statement in found}


def _words(statement: str) -> str:
    """A statement without what two writers of it differ in: quotes and white space."""
    return "".join(statement.replace('"', "").split())


def is_damage(error: DatabaseError, engine: Engine) -> bool:
    """Whether an error of the database shows a damaged book, and not a lost server or a file that never was a book."""
    if engine.dialect.name != "sqlite":
        return _is_corruption(error)
    code = getattr(error.orig, "sqlite_errorcode", None)
    if code is None:
        # The driver's own: a text that is not UTF-8.
        return True
    if not {code, code & 0xFF} & _DAMAGED:
        return False
    if code & 0xFF == 26:
        return _was_book(Path(str(engine.url.database)))
    return code & 0xFF != 1 or _holds_tables(engine)


def _is_corruption(error: DatabaseError) -> bool:
    # XX000, XX001 and XX002: internal error, data corrupted, index corrupted.
    return str(getattr(error.orig, "sqlstate", "") or "").startswith("XX")


def _was_book(path: Path) -> bool:
    """Whether a file that SQLite does not take for its own began as one, or holds what a book does.

    It begins as SQLite's do, but for its first words or the rest (bytes 21 to 23 are the same in all); or it is no
    text, and has the schema's words or an entry in it.
    """
    with path.open("rb") as file:
        head = file.read(_HEADER_BYTES)
        if head.startswith(b"SQLite format 3\0") or head[21:24] == b"\x40\x20\x20":
            return True
        if not head:
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(b"\0") >= 0 and any(data.find(words) >= 0 for words in _WORDS_OF_A_BOOK)


def _holds_tables(engine: Engine) -> bool:
    """Whether a database has tables of a book, or a schema that cannot be read any more."""
    try:
        with engine.begin() as connection:
            names = set(connection.exec_driver_sql("SELECT name FROM sqlite_master").scalars())
    except (SQLAlchemyError, ValueError):
        return True
    return bool(names & metadata.tables.keys())


def _first_line(error: DatabaseError) -> str:
    return str(error.orig).strip().partition("\n")[0]
