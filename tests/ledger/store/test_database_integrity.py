"""The database's own check, and read-only media: a book is verified there too, and never half of it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DatabaseError, OperationalError

from ledger.audit.replay import VerificationFailed, verify_book
from ledger.store.database_integrity import check_integrity
from ledger.store.engine import engine_of
from ledger.store.schema_revision import BookUnusable
from tests.factories.people import LOG
from tests.factories.stored import StoredWorld, copy, no_step, open_world
from tests.ledger.audit.forge import tampered
from tests.postgres import new_book

NOBODY = 65_534


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed book."""
    with open_world(tmp_path_factory.mktemp("sound")) as world:
        world.submit(world.charge("run-1"), world.settle("run-1", 40))
        return world.path


@contextmanager
def read_only(*files: Path) -> Iterator[Path]:
    """A folder with copies, which this process may read and not write, whoever runs the tests."""
    folder = Path(tempfile.mkdtemp(prefix="worm-"))
    user = os.geteuid()
    try:
        for file in files:
            shutil.copy(file, folder)
            (folder / file.name).chmod(0o444)
        folder.chmod(0o555)
        if user == 0:
            os.seteuid(NOBODY)
        yield folder
    finally:
        if user == 0:
            os.seteuid(0)
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_book_on_read_only_media_verifies(book: Path) -> None:
    """An auditor's copy in a folder that nobody may write, under another user."""
    with read_only(book) as folder:
        with pytest.raises(PermissionError):
            (folder / "x").touch()
        assert verify_book(f"sqlite:///{folder / book.name}", LOG, no_step).charges == 1
        assert [file.name for file in folder.iterdir()] == [book.name]


def test_a_log_that_cannot_be_read_there_is_not_passed_over(tmp_path: Path) -> None:
    """Entries that lie in the log beside the file alone would be missing: nothing is verified without them."""
    with open_world(tmp_path) as world:
        world.submit(world.charge("run-1"))
        files = [world.path, Path(f"{world.path}-wal")]
        assert files[1].stat().st_size
        with read_only(*files) as folder, pytest.raises(OperationalError):
            verify_book(f"sqlite:///{folder / world.path.name}", LOG, no_step)


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("UPDATE sqlite_master SET sql = replace(sql, 'runs >= 0', 'runs >= -1')", "the table contract is not as"),
        ("UPDATE sqlite_master SET rootpage = 0 WHERE name = 'ix_charge_due'", "SQLite finds the file damaged"),
        ("DELETE FROM sqlite_master WHERE name = 'ix_charge_due'", "SQLite finds the file damaged"),
        ("UPDATE sqlite_master SET type = 'Index' WHERE name = 'ix_node_kind'", "the index ix_node_kind is not as"),
    ],
)
def test_a_changed_schema_is_found(book: Path, tmp_path: Path, script: str, found: str) -> None:
    """By whoever may write the file: the entries and the rows are untouched."""
    changed = tampered(book, tmp_path / "book.sqlite", f"PRAGMA writable_schema = ON; {script};")
    with pytest.raises(VerificationFailed, match=found):
        verify_book(f"sqlite:///{changed}", LOG, no_step)


@pytest.mark.parametrize(
    "revision", ["0001", "0002", "0003", "0004", "0005", "0006", "0007", "0009", "8004", "000;", "00³3", "000", "0000"]
)
def test_a_revision_that_the_schema_contradicts_is_damage(book: Path, tmp_path: Path, revision: str) -> None:
    """One bit of it is enough for most of these: the tables are those of this program's."""
    changed = tampered(book, tmp_path / "b", "UPDATE alembic_version SET version_num = ?", revision)
    with pytest.raises(VerificationFailed, match="the schema "):
        verify_book(f"sqlite:///{changed}", LOG, no_step)


def test_a_book_of_a_newer_program_is_not_damaged(book: Path, tmp_path: Path) -> None:
    """Its schema has what this program does not know; nor is another application's database a damaged book."""
    script = "CREATE TABLE later (x INTEGER); UPDATE alembic_version SET version_num = '0009'"
    with pytest.raises(BookUnusable, match="0009 is newer than this program"):
        verify_book(f"sqlite:///{tampered(book, tmp_path / 'newer', script)}", LOG, no_step)
    with closing(sqlite3.connect(tmp_path / "other")) as other:
        other.executescript("CREATE TABLE alembic_version (version_num); INSERT INTO alembic_version VALUES ('f00d')")
    with pytest.raises(BookUnusable, match="f00d is newer than this program"):
        verify_book(f"sqlite:///{tmp_path / 'other'}", LOG, no_step)


def test_a_postgresql_book_says_no_revision_but_its_own(tmp_path: Path) -> None:
    """As on SQLite: a revision is changed, and then the schema with it."""
    with new_book() as database:
        world = StoredWorld(tmp_path, database.url)
        world.book.close()
        owner = engine_of(database.owner, writes=True)
        try:
            for script, error in (
                ("UPDATE alembic_version SET version_num = '0010'", VerificationFailed),
                ("UPDATE alembic_version SET version_num = '0001'", VerificationFailed),
                ("UPDATE alembic_version SET version_num = '000s'", VerificationFailed),
                ("UPDATE alembic_version SET version_num = '0009'; CREATE TABLE later (x integer)", BookUnusable),
            ):
                with owner.begin() as connection:
                    connection.exec_driver_sql(script)
                with pytest.raises(error):
                    verify_book(database.url, LOG, no_step)
        finally:
            owner.dispose()


@pytest.mark.parametrize("first", [16, 64, 100, 4_096])
def test_a_file_without_its_first_bytes_is_damaged(book: Path, tmp_path: Path, first: int) -> None:
    """SQLite says of most that they are no database; they hold entries all the same. What never was a book is none."""
    path = tmp_path / "book.sqlite"
    path.write_bytes(bytes(first) + book.read_bytes()[first:])
    with pytest.raises(VerificationFailed, match="the database cannot be read"):
        verify_book(f"sqlite:///{path}", LOG, no_step)
    path.write_bytes(os.urandom(first) + bytes(4_096))
    with pytest.raises(DatabaseError):
        verify_book(f"sqlite:///{path}", LOG, no_step)


def test_a_foreign_trigger_is_found(book: Path, tmp_path: Path) -> None:
    """One that acts inside the book's own transactions."""
    script = "CREATE TRIGGER zz AFTER INSERT ON checkpoint BEGIN UPDATE account SET posted = 0; END;"
    with pytest.raises(VerificationFailed, match="the trigger zz on the table checkpoint is not this program's"):
        verify_book(f"sqlite:///{tampered(book, tmp_path / 'book.sqlite', script)}", LOG, no_step)


def test_an_index_that_lacks_a_row_is_found(book: Path, tmp_path: Path) -> None:
    """The id of a charge is not found by its index: its entry and its row are as they were."""
    path = copy(book, tmp_path / "book.sqlite")
    data = bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_entry_1'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    place = data.index(b"run-1", (page - 1) * size)
    assert place < page * size
    data[place + 4] ^= 1
    path.write_bytes(data)
    with pytest.raises(VerificationFailed, match=r"SQLite finds the file damaged: .*sqlite_autoindex_entry_1"):
        verify_book(f"sqlite:///{path}", LOG, no_step)


def test_a_node_under_another_key_is_found(book: Path, tmp_path: Path) -> None:
    """The hashes come in the same order; the place where a receipt looks for one is empty."""
    changed = tampered(
        book,
        tmp_path / "book.sqlite",
        "UPDATE tree_node SET position = 99 WHERE level = 0 AND position = (SELECT max(position) FROM tree_node "
        "WHERE level = 0)",
    )
    with pytest.raises(VerificationFailed, match=r"tree node 0/\d+ is not that of the entries"):
        verify_book(f"sqlite:///{changed}", LOG, no_step)


def test_postgresql_says_what_it_did_not_check(tmp_path: Path) -> None:
    """Without amcheck the report says so; with it, and the right to run it, every index is checked."""
    with new_book() as database:
        world = StoredWorld(tmp_path, database.url)
        world.submit(*world.founding())
        world.book.close()
        report = verify_book(database.url, LOG, no_step)
        assert "the database has no extension amcheck" in report.in_words()
        owner = engine_of(database.owner, writes=True)
        try:
            if _has_amcheck(owner):
                _check_with_amcheck(owner, database.url)
        finally:
            owner.dispose()


def _has_amcheck(owner: Engine) -> bool:
    with owner.begin() as connection:
        found = connection.execute(text("SELECT 1 FROM pg_available_extensions WHERE name = 'amcheck'")).scalar()
    return found is not None


def _check_with_amcheck(owner: Engine, url: str) -> None:
    with owner.begin() as connection:
        connection.execute(text("CREATE EXTENSION amcheck"))
        assert not check_integrity(connection)
    assert verify_book(url, LOG, no_step).not_run == "this role may not run amcheck"
    with owner.begin() as connection:
        connection.execute(text("GRANT EXECUTE ON FUNCTION bt_index_check(regclass, boolean) TO epsilon_writer"))
    assert verify_book(url, LOG, no_step).not_run == ""
    with owner.begin() as connection:
        # As a damaged page would: the index says that it holds another order than it does.
        connection.execute(text("UPDATE pg_index SET indoption = '1 1' WHERE indexrelid = 'ix_node_kind'::regclass"))
    with pytest.raises(VerificationFailed, match="PostgreSQL finds the index ix_node_kind damaged: item order"):
        verify_book(url, LOG, no_step)
