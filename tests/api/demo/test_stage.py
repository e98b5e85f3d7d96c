"""The folder of a demonstration: an earlier one is kept, and what no demonstration made is left alone."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from api.cli.main import app
from api.demo.stage import make_room
from ledger.store.sqlite_file.file_lock import FileLock


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    """The demonstration replaces only what a demonstration made."""
    mine = tmp_path / "demo" / "thesis.txt"
    mine.parent.mkdir()
    mine.write_text("mine", encoding="ascii")
    for option in ((), ("--replace",)):
        done = CliRunner().invoke(app, ["demo", str(mine.parent), *option])
        assert (done.exit_code, "name another folder" in done.stderr) == (1, True), done.output
    assert mine.read_text(encoding="ascii") == "mine"


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    """It is said what to do, and the file stays."""
    file = tmp_path / "thesis.txt"
    file.write_text("mine", encoding="ascii")
    done = CliRunner().invoke(app, ["demo", str(file), "--replace"])
    assert (done.exit_code, f"FOLDER: {file} is a file: name a folder" in done.stderr) == (2, True), done.output
    assert file.read_text(encoding="ascii") == "mine"


def test_an_earlier_demonstration_is_kept_unless_it_is_replaced(tmp_path: Path) -> None:
    """Under the first name that is free; with ``replace`` it is deleted."""
    folder = tmp_path / "demo"
    assert make_room(folder, replace=False) is None
    for number in (1, 2, 3):
        folder.mkdir()
        (folder / ".epsilon-demo").touch()
        (folder / "book.sqlite").write_text(str(number), encoding="ascii")
        kept = make_room(folder, replace=number == 3)
        assert kept == (None if number == 3 else tmp_path / f"demo-{number}")
        assert not folder.exists()
    assert [(one.name, (one / "book.sqlite").read_text()) for one in sorted(tmp_path.iterdir())] == [
        ("demo-1", "1"),
        ("demo-2", "2"),
    ]


def test_a_demonstration_that_is_being_served_stays_where_it_is(tmp_path: Path) -> None:
    """Renamed, its service would stop at its next command, and a run would find another log at its address."""
    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / ".epsilon-demo").touch()
    (folder / "book.sqlite").touch()
    served = FileLock(folder / "book.sqlite")
    try:
        for option in ((), ("--replace",)):
            done = CliRunner().invoke(app, ["demo", str(folder), *option])
            assert (done.exit_code, "stop it with Ctrl-C" in done.stderr) == (1, True), done.output
        assert (folder / "book.sqlite").exists()
    finally:
        served.release()
