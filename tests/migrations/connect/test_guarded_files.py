"""Books that may be read and not written, or neither: ``epsilon db`` reads the one, and says why it reads no other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import ledger
from tests.factories.people import LOG
from tests.migrations.places import Kept, db

_AS_AN_OWNER: Final = """
import ctypes, sys
from epsilon_ledger.__main__ import main
# Root may read and write anything; without its capabilities (capset(2), version 3) it is an owner like every other.
header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
assert ctypes.CDLL(None, use_errno=True).capset(header, none) == 0
main()
"""


def _run(*words: str | Path) -> tuple[int, str]:
    command = [sys.executable, "-c", _AS_AN_OWNER, *map(str, words)]
    env = {**os.environ, "PYTHONPATH": str(Path(ledger.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=env)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def guarded(grown: Kept, tmp_path: Path) -> Path:
    """A closed book in a folder of its own, with its log's key."""
    folder = tmp_path / "media"
    folder.mkdir()
    (folder / "log.vkey").write_text(LOG.vkey)
    done = db("restore", grown.backup, folder / "book.sqlite", "--log", folder / "log.vkey", "--without-kept")
    assert done.code == 0, done.out
    (folder / "book.sqlite.lock").unlink(missing_ok=True)
    return folder / "book.sqlite"


def test_a_book_in_a_folder_that_may_not_be_written_is_read(guarded: Path, tmp_path: Path) -> None:
    """An auditor's copy on read-only media: its status, its check and its backup."""
    guarded.chmod(0o400)
    guarded.parent.chmod(0o500)
    try:
        done = {
            "status": _run("db", "status", guarded),
            "check": _run("db", "check", guarded),
            "backup": _run("db", "backup", guarded, tmp_path / "again.zip"),
        }
    finally:
        guarded.parent.chmod(0o700)
    assert {name: code for name, (code, _) in done.items()} == dict.fromkeys(done, 0), done
    assert (tmp_path / "again.zip").is_file()
    assert sorted(one.name for one in guarded.parent.iterdir()) == ["book.sqlite", "log.vkey"]


@pytest.mark.parametrize("command", ["verify", "log", "db backup"])
def test_a_writers_log_beside_the_end_of_a_symbolic_link_is_not_passed_over(
    guarded: Path, tmp_path: Path, command: str
) -> None:
    """A killed service left it on media that cannot be written: read without it, the book would lack entries."""
    Path(f"{guarded}-wal").write_bytes(b"entries")
    link = tmp_path / "link.sqlite"
    link.symlink_to(guarded)
    (tmp_path / "log.vkey").write_text(LOG.vkey)
    target = [tmp_path / "again.zip"] if command == "db backup" else []
    guarded.chmod(0o400)
    guarded.parent.chmod(0o500)
    try:
        code, said = _run(*command.split(), link, *target)
    finally:
        guarded.parent.chmod(0o700)
    assert (code in {2, 5}, "unable to open database file" in said) == (True, True), said
    assert not (tmp_path / "again.zip").exists()


@pytest.mark.parametrize("command", ["db status", "db check", "verify", "standing"])
def test_a_file_that_may_not_be_read_is_called_so(guarded: Path, command: str) -> None:
    """It may well be a book: nobody is told that there is none, or to make one."""
    guarded.chmod(0o000)
    code, said = _run(*command.split(), guarded)
    assert code != 0
    assert "Permission denied" in said
    assert not [words for words in ("no book", "is not a book", "Traceback") if words in said], said
