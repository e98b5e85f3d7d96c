"""The status of a book, and what a check finds."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ledger.log.checkpoint import sign
from ledger.store.tables import SCHEMA_REVISION
from ledger.verifier import Checkpoint
from tests.factories.people import LOG_KEY, ORIGIN, private_key
from tests.migrations.places import Kept, Spot, db, spot


def test_status_tells_what_is_there(book: Spot, grown: Kept, engine: str) -> None:
    """Engine, schema, log, triggers and who has it open, for people and for programs."""
    told = db("status", book.book, "--json").json
    assert told["engine"].startswith({"sqlite": "SQLite 3.", "postgresql": "PostgreSQL "}[engine])
    assert (told["entries"], told["checkpoint"]) == (grown.size, grown.checkpoint.read_text())
    assert (told["schema"], told["schema_newest"], told["moved_to"]) == (SCHEMA_REVISION, SCHEMA_REVISION, None)
    assert (told["triggers_missing"], told["rights_wrong"], told["held"]) == ([], [], False)
    words = db("status", book.book).out
    assert f"{grown.size} entries of {ORIGIN}" in words
    assert told["root"] not in words
    assert told["root"] in db("status", book.book, "--verbose").out


def test_status_tells_who_has_it_open(book: Spot) -> None:
    """A service that has the book open is seen, and is not disturbed."""
    opened = book.open()
    try:
        assert db("status", book.book, "--json").json["held"] is True
        assert "a process has it open" in db("status", book.book).out
    finally:
        opened.close()
    assert db("status", book.book, "--json").json["held"] is False


def test_status_of_nothing(place: Spot, tmp_path: Path) -> None:
    """Exit code 4, and what to do; nothing is made by asking."""
    done = db("status", place.book)
    assert (done.code, done.out) == (4, f"there is no book at {place.book}: run 'epsilon db upgrade' to make one")
    assert not list(tmp_path.glob("book*"))


def test_a_check_verifies_everything(book: Spot, grown: Kept) -> None:
    """And says how much that was; a kept checkpoint is held against the tree."""
    found = db("check", book.book, *book.log, "--kept", grown.first, "--json").json
    assert (found["ok"], found["entries"], found["charges"]) == (True, grown.size, len(grown.rows["charge"]))
    told = db("check", book.book, *book.log).out
    assert "entries replayed with their signatures, every policy decision evaluated again" in told


def test_a_check_of_a_book_without_entries(place: Spot) -> None:
    """Its schema is checked, and it is told that there is no more."""
    assert db("upgrade", place.book).code == 0
    assert db("check", place.book, *place.log).out.startswith(
        "the schema is as expected; verified: the book has no entries"
    )


@pytest.mark.parametrize(
    ("table", "statement", "found"),
    [
        ("charge", "UPDATE charge SET steps_posted = 0 WHERE id = 'run-0'", "charges: the row of run-0"),
        ("account", "UPDATE account SET posted = posted - 1 WHERE posted > 0", "accounts: the row of"),
        ("entry", "UPDATE entry SET data = {changed} WHERE position = 7", "entry 7: "),
        ("entry", "UPDATE entry SET kind = 'void' WHERE position = 7", "entry 7: is filed under"),
        ("document", "UPDATE document SET data = {changed}", "its bytes have another digest"),
        ("tree_node", "UPDATE tree_node SET position = 900 WHERE level = 1 AND position = 2", "tree node 1/2"),
        ("checkpoint", "UPDATE checkpoint SET note = replace(note, 'example', 'elsewhere')", "checkpoint at "),
    ],
)
def test_a_check_finds_what_was_changed(book: Spot, table: str, statement: str, found: str) -> None:
    """Exit code 7, and the place; the same as JSON."""
    book.tamper(table, statement)
    done = db("check", book.book, *book.log)
    assert (done.code, found in done.out) == (7, True), done.out
    told = db("check", book.book, *book.log, "--json")
    assert (told.code, told.json["ok"], told.json["fault"]) == (7, False, done.out)


@pytest.mark.parametrize(
    "script", ["ALTER TABLE charge ADD COLUMN note TEXT", "DROP INDEX ix_charge_due", "DROP TABLE contract_head"]
)
def test_a_check_finds_another_schema(book: Spot, script: str) -> None:
    """A column, an index or a table more or less, whoever made it."""
    book.run(script)
    done = db("check", book.book, *book.log)
    assert done.code in {5, 7}, done.out
    assert "schema is not that of revision" in done.out or "not a book's" in done.out


def test_a_lost_trigger_is_reported(book: Spot, engine: str) -> None:
    """By status, which goes on, and by check, which does not."""
    book.run("DROP TRIGGER entry_not_sealed" + (" ON entry" if engine == "postgresql" else ""))
    assert db("status", book.book, "--json").json["triggers_missing"] == ["entry_not_sealed"]
    assert "entry_not_sealed missing or changed" in db("status", book.book).out
    assert db("check", book.book, *book.log).out == "the book lacks the trigger entry_not_sealed"


def test_wrong_rights_are_reported(grown: Kept, tmp_path: Path) -> None:
    """Whoever may do more than was granted, and an application that may do less; to read is nobody's fault."""
    told = {
        "GRANT UPDATE ON entry TO epsilon_writer": "epsilon_writer may UPDATE entry",
        "GRANT UPDATE (note) ON checkpoint TO PUBLIC": "everybody may UPDATE checkpoint",
        "GRANT TRUNCATE ON charge TO PUBLIC": "everybody may TRUNCATE charge",
        "REVOKE INSERT ON document FROM epsilon_writer": "epsilon_writer may not INSERT document",
    }
    with spot("postgresql", tmp_path) as place:
        grown.put(place)
        place.run("GRANT SELECT ON entry TO PUBLIC")
        assert db("status", place.book, "--json").json["rights_wrong"] == []
        for grant, words in told.items():
            place.run(grant)
            assert words in db("status", place.book, "--json").json["rights_wrong"]
        assert db("status", place.book, "--json").json["rights_wrong"] == sorted(told.values())
        assert db("check", place.book, *place.log).out == f"grants are not those of the schema: {min(told.values())}"


def test_a_damaged_file_is_found(grown: Kept, tmp_path: Path) -> None:
    """SQLite's own check comes first: an index that lacks a row is no fault of any entry."""
    with spot("sqlite", tmp_path) as place:
        path = grown.put(place).path
    with closing(sqlite3.connect(path)) as file:
        root = file.execute("SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_charge_1'").fetchone()[0]
        size = file.execute("PRAGMA page_size").fetchone()[0]
    data = path.read_bytes()
    index = data[(root - 1) * size : root * size]
    path.write_bytes(data.replace(index, index.replace(b"run-1", b"run-9")))
    done = db("check", path)
    assert (done.code, "SQLite finds the file damaged" in done.out) == (7, True), done.out


def test_a_fork_is_shown(book: Spot, grown: Kept, tmp_path: Path) -> None:
    """A checkpoint of the same log with another root, an older book, and another log's checkpoint."""
    other, later, foreign = tmp_path / "other", tmp_path / "later", tmp_path / "foreign"
    other.write_text(sign(Checkpoint(ORIGIN, 5, bytes(32)), LOG_KEY))
    later.write_text(sign(Checkpoint(ORIGIN, grown.size + 1, bytes(32)), LOG_KEY))
    foreign.write_text(sign(Checkpoint(ORIGIN, 5, bytes(32)), private_key("another log")))
    told = {one: db("check", book.book, *book.log, "--kept", one) for one in (other, later, foreign)}
    assert (told[other].code, "is a fork" in told[other].out) == (7, True)
    assert (told[later].code, "it would give back budgets spent since" in told[later].out) == (7, True)
    assert (told[foreign].code, "is not signed by the log's key" in told[foreign].out) == (2, True)


@pytest.mark.parametrize(
    ("book", "field"),
    [
        ("mysql://host/ledger", "must be in SQLite or PostgreSQL, not in mysql"),
        ("postgresql://me:secret@host/ledger", "must not hold a password"),
        ("postgresql://host/ledger?password=secret", "must not hold a password"),
        ("postgresql://host:port/ledger", "is not a readable URL"),
        ("postgresql://host/ledger?port=x", "must name a host and a port that is a number"),
        ("postgresql:///ledger?host=one:1&host=two&port=1,2,3", "must name a host and a port that is a number"),
        ("sqlite://", "must be a file"),
        ("", "must be the path"),
        ("a\nb", "must be the path"),
        ("x" * 5000, "must be the path"),
    ],
)
def test_a_bad_place_is_named(book: str, field: str) -> None:
    """One sentence that names the field and the rule, and never the password."""
    done = db("status", book)
    assert (done.code, field in done.out, "secret" in done.out, "\n" in done.out) == (2, True, False, False), done.out


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    """One sentence, without a trace of what was tried."""
    done = db("status", f"postgresql://me@/ledger?host={tmp_path}")
    assert (done.code, "\n" in done.out) == (5, False), done.out
    assert json.dumps(str(tmp_path))[1:-1] in done.out


def test_odd_names_are_names(tmp_path: Path) -> None:
    """A path may hold what a URL would take for something else."""
    path = tmp_path / "a?b#c%41 d.sqlite"
    assert db("upgrade", path).code == 0
    assert path.is_file()
    assert db("status", path, "--json").json["book"] == str(path)


def test_a_key_is_requested(book: Spot, tmp_path: Path) -> None:
    """Without the log's key nothing is proven: it is looked for beside the book, and else named."""
    (book.folder / "log.vkey").unlink()
    done = db("check", book.book)
    assert (done.code, "name the log's verifier key with --log" in done.out) == (2, True)
    (tmp_path / "bad").write_bytes(b"\xff")
    assert db("check", book.book, "--log", tmp_path / "bad").code == 2
    assert db("check", book.book, "--log", tmp_path / "none").code == 4
