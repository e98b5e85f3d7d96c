"""Up, down and up again: the same schema, the same log, and nothing of anybody else's touched."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import psycopg
import pytest

from ledger.domain.gate import POLICY_DOCUMENT_BYTES_MAX
from ledger.store.tables import SCHEMA_REVISION
from ledger.wire.malformed import Malformed
from migrations.schema.revisions import known_revisions
from tests.migrations.places import Kept, Spot, db
from tests.migrations.schema.schema_dump import schema_of

GOLDEN: Final = Path(__file__).with_name("golden")


def test_up_down_up_leaves_the_same_schema(book: Spot, grown: Kept) -> None:
    """Tables, constraints, indexes, triggers and rights to the letter, and every row."""
    before = schema_of(book)
    for revision in known_revisions()[-2::-1]:
        assert db("downgrade", book.book, revision, "--json").json["schema"] == revision
        assert schema_of(book) != before
    done = db("upgrade", book.book, "--json").json
    assert (done["schema_before"], done["schema"], done["entries"]) == ("0001", SCHEMA_REVISION, grown.size)
    assert (schema_of(book), book.rows()) == (before, grown.rows)


def test_a_book_made_new_has_the_schema_of_one_that_grew(book: Spot, twin: Spot) -> None:
    """Whether it was upgraded revision by revision or at once."""
    assert [db("downgrade", book.book, "0001").code, db("upgrade", book.book).code] == [0, 0]
    assert db("upgrade", twin.book).code == 0
    assert schema_of(twin) == schema_of(book)


def test_a_long_document_is_kept_and_stops_a_downgrade(book: Spot) -> None:
    """An earlier schema has no room for it: nothing is changed, and the schema still refuses what is longer yet."""
    with closing(book.open()) as opened:
        opened.put_document(b"x" * POLICY_DOCUMENT_BYTES_MAX)
        with pytest.raises(Malformed):
            opened.put_document(b"x" * (POLICY_DOCUMENT_BYTES_MAX + 1))
    before = schema_of(book), book.rows()
    done = db("downgrade", book.book, "0004")
    assert (done.code, "delete the rows of document that are longer than 262144 bytes" in done.out) == (5, True)
    assert (schema_of(book), book.rows()) == before
    long = "zeroblob(2097153)" if book.engine == "sqlite" else "decode(repeat('00', 2097153), 'hex')"
    with pytest.raises((sqlite3.IntegrityError, psycopg.errors.CheckViolation)):
        book.run(f"INSERT INTO document (digest, data) VALUES ('a', {long})")  # noqa: S608 - our own
    assert book.rows() == before[1]


def test_nothing_lies_below_the_first_revision(book: Spot, grown: Kept) -> None:
    """Neither base nor a revision that never was; an older program's newest is no way up."""
    for revision in ("base", "0000", "head", "0001; DROP TABLE entry"):
        done = db("downgrade", book.book, revision)
        assert (done.code, done.out[:21]) == (5, "there is no revision "[:21])
    assert db("downgrade", book.book, "0001").code == 0
    assert db("downgrade", book.book, "0002").out == f"{book.book} is at 0001, below 0002: that would be an upgrade"
    assert {name: rows for name, rows in grown.rows.items() if name != "seal"}.items() <= _rows(book).items()


def _rows(book: Spot) -> dict[str, list[tuple[object, ...]]]:
    assert db("upgrade", book.book).code == 0
    return book.rows()


def test_the_printed_sql_is_the_upgrade(place: Spot, twin: Spot, engine: str) -> None:
    """Printing runs nothing; run by the engine's own driver it makes the same schema, word for word as kept."""
    printed = db("upgrade", place.book, "--sql")
    assert printed.code == 0
    assert db("status", place.book).code == 4
    kept = GOLDEN / f"upgrade.{engine}.sql"
    assert printed.out + "\n" == kept.read_text(), (
        "a schema that a book may have is only followed: add a revision; or, until 0.1.0 is tagged, write this file "
        "anew with the output of 'epsilon db upgrade', a new place and --sql"
    )
    place.run(printed.out)
    assert db("upgrade", twin.book).code == 0
    assert schema_of(place) == schema_of(twin)
    assert db("upgrade", place.book).code == 0


def test_the_sql_begins_where_the_book_is(book: Spot) -> None:
    """From the first revision only what came after is printed, and it does what the upgrade does."""
    whole = schema_of(book)
    assert db("downgrade", book.book, "0001").code == 0
    printed = db("upgrade", book.book, "--sql").out
    assert "CREATE TABLE seal" in printed
    assert "CREATE TABLE entry" not in printed
    book.run(printed)
    assert schema_of(book) == whole


def test_the_sql_is_printed_offline(book: Spot, engine: str) -> None:
    """With the revision named, no database is asked: there is none at that place."""
    whole = schema_of(book)
    nowhere = "nowhere/book.sqlite" if engine == "sqlite" else "postgresql://owner@127.0.0.1:1/nowhere"
    assert (
        db("upgrade", nowhere, "--sql", "--from", "none").out + "\n" == (GOLDEN / f"upgrade.{engine}.sql").read_text()
    )
    assert db("downgrade", book.book, "0002").code == 0
    printed = db("upgrade", nowhere, "--sql", "--from", "0002")
    assert printed.code == 0
    book.run(printed.out)
    assert schema_of(book) == whole
    assert db("upgrade", nowhere, "--sql", "--from", "0000").code == 5
    assert db("upgrade", nowhere, "--from", "0002").code == 2


def test_a_newer_schema_is_refused(book: Spot) -> None:
    """By every command, with what this program knows."""
    book.run("UPDATE alembic_version SET version_num = '9999'")
    for command in (["upgrade"], ["upgrade", "--sql"], ["downgrade", "0001"], ["status"], ["check", *book.log]):
        done = db(command[0], book.book, *command[1:])
        reported = f"the book's schema 9999 is newer than this program, which knows {SCHEMA_REVISION}"
        assert (done.code, done.out) == (5, reported)
    assert db("backup", book.book, book.folder / "b.zip").code == 5
    assert not (book.folder / "b.zip").exists()


@pytest.mark.parametrize("script", ["CREATE TABLE sale (id int)", "CREATE TABLE alembic_version (version_num text)"])
def test_a_database_of_somebody_elses_is_left_alone(place: Spot, grown: Kept, script: str) -> None:
    """Other tables, with or without an Alembic history of their own: refused, and nothing is there that was not."""
    if "alembic" in script:
        script += "; INSERT INTO alembic_version VALUES ('0001')"
    place.run(script)
    before = schema_of(place)
    for command in (["upgrade"], ["downgrade", "0001"], ["status"]):
        done = db(command[0], place.book, *command[1:])
        assert (done.code, "holds tables that are not a book's" in done.out) == (5, True), done.out
    done = db("restore", grown.backup, place.book, "--kept", grown.checkpoint, *place.log)
    assert (done.code, "nothing is written over" in done.out) == (5, True)
    assert schema_of(place) == before


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    """Byte for byte; and another program's SQLite file keeps its journal mode."""
    text, other = tmp_path / "letter", tmp_path / "sales"
    text.write_text("Dear Sir or Madam" * 100)
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE sale (id int)")
    before = text.read_bytes(), other.read_bytes()
    for path in (text, other):
        for command in (["upgrade", path], ["status", path], ["backup", path, tmp_path / "b.zip"]):
            assert db(*command).code == 5
    assert (text.read_bytes(), other.read_bytes()) == before


def test_a_tampered_log_is_not_upgraded(book: Spot) -> None:
    """The migration is undone, and the entry named."""
    assert db("downgrade", book.book, "0001").code == 0
    before = schema_of(book)
    book.tamper("entry", "UPDATE entry SET time = time, data = {changed} WHERE position = 7")
    done = db("upgrade", book.book)
    assert (done.code, done.out) == (7, "entry 7: tree node 0/7 is not that of the entries")
    assert schema_of(book) == before


def test_a_book_cut_short_is_not_upgraded(book: Spot) -> None:
    """Entries gone from its end leave nodes of no entry."""
    book.tamper("entry", "DELETE FROM entry WHERE position = (SELECT max(position) FROM entry)")
    assert (db("upgrade", book.book).code, db("upgrade", book.book).out) == (7, "the tree has a node of no entry")


def test_a_lost_checkpoint_is_noticed(book: Spot) -> None:
    """The newest entries must stand under one."""
    book.tamper("checkpoint", "DELETE FROM checkpoint WHERE tree_size = (SELECT max(tree_size) FROM checkpoint)")
    done = db("upgrade", book.book)
    assert (done.code, "newest checkpoint is not that of these" in done.out) == (7, True)


def test_a_broken_migration_leaves_the_book_as_it_was(book: Spot) -> None:
    """A statement fails after the others: all of them are undone, the version included."""
    assert db("downgrade", book.book, "0001").code == 0
    book.run("CREATE TABLE seal (position int)")
    before = schema_of(book)
    done = db("upgrade", book.book)
    assert (done.code, "already exists" in done.out, "\n" in done.out) == (5, True, False)
    assert schema_of(book) == before
