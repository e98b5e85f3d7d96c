"""``epsilon verify``: its exit code and its one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import migrations
from ledger.cli import app
from tests.book.forge import tampered
from tests.book.world import LOG, open_world


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
    return found


def test_a_sound_book(book: Path) -> None:
    """Exit 0, in words and as JSON."""
    told = _verify(book)
    assert told.exit_code == 0
    assert told.stdout.startswith("verified: 12 entries replayed with their signatures, ")
    found = json.loads(_verify(book, "--json").stdout)
    assert (found["ok"], found["entries"], found["charges"], found["log"]) == (True, 12, 1, LOG.origin)


def test_a_book_replayed_and_no_more(book: Path) -> None:
    """What was left out is said, in words and as JSON."""
    told = _verify(book, "--no-decisions").stdout
    assert told.startswith("verified: 12 entries replayed WITHOUT their signatures, NOTHING decided again, ")
    found = json.loads(_verify(book, "--no-decisions", "--json").stdout)
    assert [found[name] for name in ("signatures", "decided_again", "policy_decided_again")] == [0, False, False]


def test_a_changed_book(book: Path, tmp_path: Path) -> None:
    """Exit 7 and the entry, in words and as JSON."""
    statement = "UPDATE entry SET data = CAST(replace(CAST(data AS TEXT), '40', '39') AS BLOB) WHERE position = ?"
    changed = tampered(book, tmp_path / "b", statement, 11)
    key = book.parent / "log.vkey"
    told = _verify(changed, "--log", key)
    assert (told.exit_code, told.stdout.startswith("entry 11: ")) == (7, True)
    found = _verify(changed, "--log", key, "--json")
    assert (found.exit_code, json.loads(found.stdout)["entry"], json.loads(found.stdout)["ok"]) == (7, 11, False)


def test_a_book_that_is_not_there(tmp_path: Path) -> None:
    """Exit 4."""
    told = _verify(tmp_path / "none.sqlite")
    assert (told.exit_code, told.output) == (4, f"there is no book at {tmp_path / 'none.sqlite'}\n")


@pytest.mark.parametrize("vkey", [None, "", "epsilon.example/ledger+00000000+AAAA", "\N{SNOWMAN}"])
def test_a_key_that_is_none(book: Path, tmp_path: Path, vkey: str | None) -> None:
    """Exit 2, for a verifier key that is missing, empty, wrong or not ASCII."""
    path = tmp_path / "log.vkey"
    if vkey is not None:
        path.write_text(vkey, encoding="utf-8")
    assert _verify(book, "--log", path).exit_code == 2


@pytest.mark.parametrize(
    "content", [b"", b"no database at all, and long enough for SQLite to read its first page" * 99]
)
def test_a_file_that_is_no_book(book: Path, tmp_path: Path, content: bytes) -> None:
    """Exit 2 and a sentence, not a trace."""
    path = tmp_path / "book.sqlite"
    path.write_bytes(content)
    told = _verify(path, "--log", book.parent / "log.vkey")
    assert (told.exit_code, "book" in told.output) == (2, True)


def test_a_book_without_an_entry(book: Path, tmp_path: Path) -> None:
    """Nothing is proven: exit 7."""
    migrations.upgrade(f"sqlite:///{tmp_path / 'b'}")
    assert _verify(tmp_path / "b", "--log", book.parent / "log.vkey").exit_code == 7


def test_the_installed_command_verifies(book: Path) -> None:
    """Through the process that people start."""
    command = [sys.executable, "-m", "epsilon_ledger", "verify", str(book)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (found.returncode, found.stdout.startswith("verified: 12 entries")) == (0, True)
