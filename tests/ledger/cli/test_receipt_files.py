"""``epsilon receipt``: both files are written whole or stay, and a link there leads nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

import ledger
from ledger.cli.main import app
from ledger.verifier import verify_receipt
from tests.factories.people import LOG
from tests.factories.stored import open_world


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A closed book with one run."""
    with open_world(tmp_path) as world:
        world.submit(world.charge("run-1"))
    return world.path


def _files(folder: Path) -> tuple[Path, Path]:
    (entry,), (proof,) = folder.glob("*.entry"), folder.glob("*.tlog-proof")
    return entry, proof


def test_a_link_there_is_replaced_and_not_written_through(book: Path, tmp_path: Path) -> None:
    """Another's file of that name would be overwritten by whoever asks for evidence into a shared folder."""
    folder, victim = tmp_path / "evidence", tmp_path / "victim"
    assert CliRunner().invoke(app, ["receipt", str(book), "run-1", str(folder)]).exit_code == 0
    first = [one.read_bytes() for one in _files(folder)]
    victim.write_text("precious")
    for one in _files(folder):
        one.unlink()
        one.symlink_to(victim)
    done = CliRunner().invoke(app, ["receipt", str(book), "run-1", str(folder)])
    assert done.exit_code == 0, done.output
    assert (victim.read_text(), [one.is_symlink() for one in _files(folder)]) == ("precious", [False, False])
    assert [one.read_bytes() for one in _files(folder)] == first
    assert verify_receipt(first[1].decode(), first[0], LOG)[1].origin == LOG.origin


_SHORT: Final = """
import resource, sys
from ledger.cli.main import app
def shorten(event, arguments):
    # What was read is in memory: from here on no file has room.
    if event == "open" and ".tlog-proof" in str(arguments[0]):
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
sys.addaudithook(shorten)
app(sys.argv[1:])
"""


def test_what_has_no_room_is_named_and_what_was_there_stays(book: Path, tmp_path: Path) -> None:
    """No empty file is left in the place of evidence."""
    folder = tmp_path / "evidence"
    assert CliRunner().invoke(app, ["receipt", str(book), "run-1", str(folder)]).exit_code == 0
    before = {one.name: one.read_bytes() for one in folder.iterdir()}
    words = [sys.executable, "-c", _SHORT, "receipt", str(book), "run-1", str(folder)]
    env = {**os.environ, "PYTHONPATH": str(Path(ledger.__file__).parents[1])}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{_files(folder)[1]}: File too large\n"
    assert {one.name: one.read_bytes() for one in folder.iterdir()} == before
