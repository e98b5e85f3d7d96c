"""``epsilon verify``: its exit code and its one sentence."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner, Result

import migrations
from ledger.cli.main import app
from tests.factories.people import LOG
from tests.factories.stored import copy, open_world
from tests.ledger.audit.forge import tampered


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed book with its log's verifier key beside it."""
    with open_world(tmp_path_factory.mktemp("book")) as world:
        world.submit(world.charge("run-1"), world.settle("run-1", 40))
        (world.path.parent / "log.vkey").write_text(f"{LOG.vkey}\n", encoding="ascii")
        return world.path


def _verify(*arguments: str | Path) -> Result:
    found = CliRunner().invoke(app, ["verify", *map(str, arguments)])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    assert len(found.output.strip().splitlines()) == 1, found.output
    # A fault is told where faults are read: what else reads the output gets none, but as JSON.
    assert bool(found.stdout) == (found.exit_code == 0 or "--json" in arguments), found.output
    return found


def test_a_sound_book(book: Path) -> None:
    """Exit 0, in words and as JSON."""
    reported = _verify(book)
    assert reported.exit_code == 0
    assert reported.stdout.startswith("verified: 12 entries replayed with their signatures, ")
    found = json.loads(_verify(book, "--json").stdout)
    assert (found["ok"], found["entries"], found["charges"], found["log"]) == (True, 12, 1, LOG.origin)


def test_whose_key_it_was(book: Path) -> None:
    """A key from the book's own folder is the operator's word, which success does not hide."""
    own, given = (), ("--log", book.parent / "log.vkey")
    for options, beside in ((own, True), (given, False)):
        reported = _verify(book, *options).stdout
        assert reported.endswith("read from beside the book: compare it with the one you keep\n") is beside
        assert json.loads(_verify(book, *options, "--json").stdout).get("log_key_beside_book", False) is beside


def test_a_book_replayed_and_no_more(book: Path) -> None:
    """What was left out is said, in words and as JSON."""
    reported = _verify(book, "--no-decisions").stdout
    assert reported.startswith("verified: 12 entries replayed WITHOUT their signatures, NO command decided again, ")
    found = json.loads(_verify(book, "--no-decisions", "--json").stdout)
    assert [found[name] for name in ("signatures", "decided_again", "policy_decided_again")] == [0, False, False]


def test_a_changed_book(book: Path, tmp_path: Path) -> None:
    """Exit 7 and the entry, in words and as JSON."""
    statement = "UPDATE entry SET data = CAST(replace(CAST(data AS TEXT), '40', '39') AS BLOB) WHERE position = ?"
    changed = tampered(book, tmp_path / "b", statement, 11)
    key = book.parent / "log.vkey"
    reported = _verify(changed, "--log", key)
    assert (reported.exit_code, reported.stderr.startswith("entry 11: ")) == (7, True)
    found = _verify(changed, "--log", key, "--json")
    assert (found.exit_code, json.loads(found.stdout)["entry"], json.loads(found.stdout)["ok"]) == (7, 11, False)


def test_a_book_that_is_not_there(tmp_path: Path) -> None:
    """Exit 4."""
    reported = _verify(tmp_path / "none.sqlite")
    assert (reported.exit_code, reported.output) == (
        4,
        f"there is no book at {tmp_path / 'none.sqlite'}: name its SQLite file, or a database's URL\n",
    )


NO_FILES: Final = {
    "missing": (4, "there is no file"),
    "a folder": (2, "cannot be read: Is a directory"),
    "too long": (2, "has more than 65536 bytes"),
    "binary": (2, "is not UTF-8"),
}


@pytest.mark.parametrize("vkey", [b"", b"epsilon.example/ledger+00000000+AAAA", "\N{SNOWMAN}".encode()])
def test_a_key_that_is_none(book: Path, tmp_path: Path, vkey: bytes) -> None:
    """Exit 2, for a verifier key that is empty, wrong or not ASCII."""
    path = tmp_path / "log.vkey"
    path.write_bytes(vkey)
    assert _verify(book, "--log", path).exit_code == 2


@pytest.mark.parametrize("what", NO_FILES)
@pytest.mark.parametrize("option", ["--log", "--kept"])
def test_a_file_that_cannot_be_used(book: Path, tmp_path: Path, option: str, what: str) -> None:
    """One sentence that names the option, the file and what is wrong with it."""
    path = tmp_path / "given"
    if what == "a folder":
        path.mkdir()
    elif what != "missing":
        path.write_bytes(b"\xff" * (70_000 if what == "too long" else 70))
    reported = _verify(book, option, path)
    code, words = NO_FILES[what]
    assert (reported.exit_code, words in reported.output) == (code, True), reported.output
    assert reported.output.startswith(f"{option[2:]}: ")
    assert str(path) in reported.output


def test_a_book_without_its_key(book: Path, tmp_path: Path) -> None:
    """Whoever has no log.vkey beside the book is told what to name."""
    reported = _verify(copy(book, tmp_path / "book.sqlite"))
    assert (reported.exit_code, "name the log's verifier key with --log" in reported.output) == (2, True), (
        reported.output
    )


def test_a_book_of_a_newer_program(book: Path, tmp_path: Path) -> None:
    """What this program cannot know is not called damaged: exit 5."""
    newer = tampered(book, tmp_path / "b", "CREATE TABLE later (x); UPDATE alembic_version SET version_num = '9999'")
    reported = _verify(newer, "--log", book.parent / "log.vkey")
    assert (reported.exit_code, "9999 is newer than this program, which knows" in reported.output) == (5, True), (
        reported.output
    )


@pytest.mark.parametrize("size", [12, 11, 13])
def test_a_seal_is_over_the_whole_book(book: Path, tmp_path: Path, size: int) -> None:
    """Nothing follows a seal; one over fewer or more entries was forged. Where a book went is told."""
    sealed = tampered(book, tmp_path / "b", "INSERT INTO seal VALUES (0, 'elsewhere.sqlite', ?)", size)
    reported = _verify(sealed, "--log", book.parent / "log.vkey")
    if size == 12:
        assert reported.stdout.endswith("; the book is sealed: it was moved to elsewhere.sqlite\n")
        assert json.loads(_verify(sealed, "--log", book.parent / "log.vkey", "--json").stdout)["moved_to"]
    else:
        assert (reported.exit_code, reported.stderr) == (7, f"the seal is over {size} entries; the book has 12\n")


def test_kept_checkpoints_are_counted(book: Path, tmp_path: Path) -> None:
    """One, or how many."""
    with closing(sqlite3.connect(book)) as file:
        notes = [note for (note,) in file.execute("SELECT note FROM checkpoint ORDER BY tree_size")]
    key = ("--log", book.parent / "log.vkey")
    options: list[str | Path] = []
    for number, note in enumerate(notes):
        path = tmp_path / str(number)
        path.write_text(note)
        options += ["--kept", path]
    assert _verify(book, *key, *options[:2]).stdout.endswith("; the log extends the kept checkpoint\n")
    assert _verify(book, *key, *options).stdout.endswith(f"; the log extends the {len(notes)} kept checkpoints\n")


@pytest.mark.parametrize(
    "content", [b"", b"no database at all, and long enough for SQLite to read its first page" * 99]
)
def test_a_file_that_is_no_book(book: Path, tmp_path: Path, content: bytes) -> None:
    """Exit 2 and a sentence, not a trace."""
    path = tmp_path / "book.sqlite"
    path.write_bytes(content)
    reported = _verify(path, "--log", book.parent / "log.vkey")
    assert (reported.exit_code, "book" in reported.output) == (2, True)


def test_a_book_without_an_entry(book: Path, tmp_path: Path) -> None:
    """A book just made is sound, and shorter than any checkpoint that was kept."""
    migrations.upgrade(f"sqlite:///{tmp_path / 'b'}")
    key = ("--log", book.parent / "log.vkey")
    reported = _verify(tmp_path / "b", *key)
    assert (reported.exit_code, reported.stdout.startswith("verified: the book has no entries")) == (0, True)
    assert json.loads(_verify(tmp_path / "b", *key, "--json").stdout)["entries"] == 0
    with closing(sqlite3.connect(book)) as file:
        (note,) = file.execute("SELECT note FROM checkpoint ORDER BY tree_size LIMIT 1").fetchone()
    (tmp_path / "kept").write_text(note)
    assert _verify(tmp_path / "b", *key, "--kept", tmp_path / "kept").exit_code == 7


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("INSERT INTO account VALUES ('p', 'global', 0, 0, 0, 0, 0)", "accounts: the row of ('p', 'global', 0)"),
        ("INSERT INTO tree_node VALUES (0, 0, zeroblob(32))", "tree node 0/0"),
        ("INSERT INTO checkpoint VALUES (1, 'note')", "checkpoint at 1 claims 1 entries"),
    ],
)
def test_what_no_entry_made(book: Path, tmp_path: Path, statement: str, found: str) -> None:
    """In a book without an entry every row of a table that entries make is one too many."""
    migrations.upgrade(f"sqlite:///{tmp_path / 'fresh'}")
    tampered(tmp_path / "fresh", tmp_path / "b", statement)
    reported = _verify(tmp_path / "b", "--log", book.parent / "log.vkey")
    assert (reported.exit_code, found in reported.stderr) == (7, True), reported.output


@pytest.mark.parametrize(
    "words",
    [
        ("log", "--json"),
        ("verify",),
        *(
            pytest.param(words, marks=pytest.mark.soak)
            for words in (("log",), ("db", "status"), ("db", "upgrade", "--sql"))
        ),
    ],
)
def test_a_reader_who_has_left(book: Path, words: tuple[str, ...]) -> None:
    """As after ``| head``: no complaint, and the code of a program that a closed pipe ends."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "epsilon_ledger", *words, str(book)]
    with open(write, "wb") as out:  # noqa: PTH123 - a descriptor
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (141, "")


def test_the_installed_command_verifies(book: Path) -> None:
    """Through the process that people start."""
    command = [sys.executable, "-m", "epsilon_ledger", "verify", str(book)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (found.returncode, found.stdout.startswith("verified: 12 entries")) == (0, True)
