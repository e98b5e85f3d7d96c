"""The folder of a demonstration: an earlier one is kept, and what no demonstration made is left alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from api.cli.main import app
from api.demo.stage import StageTaken, make_room, prepare
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


@pytest.mark.parametrize("before", ["none", "made"])
def test_a_demonstration_killed_at_any_moment_is_replaced(tmp_path: Path, before: str) -> None:
    """While it makes its folder, and while it deletes an earlier one: the next takes the folder."""
    command = [sys.executable, "-m", "tests.api.demo.killed_stages", str(tmp_path / "demo"), before]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # At least the folder, its mark and what lies in it.
    assert int(done.stdout) > (6 if before == "none" else 16)
    assert sorted(one.name for one in (tmp_path / "demo").iterdir()) == [
        ".epsilon-demo",
        "data",
        "jobs",
        "keys",
        "runs",
    ]


def test_nothing_of_somebody_else_gets_the_mark(tmp_path: Path) -> None:
    """What came into the folder since it was looked at is not deleted by a later demonstration."""
    (tmp_path / "thesis.txt").write_text("mine", encoding="ascii")
    with pytest.raises(StageTaken, match="name another folder"):
        prepare(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["thesis.txt"]


def test_what_lies_behind_a_link_is_not_deleted(tmp_path: Path) -> None:
    """Neither behind one in the folder, nor where the folder itself is one."""
    folder, link, mine = tmp_path / "demo", tmp_path / "link", tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").touch()
    prepare(folder)
    link.symlink_to(folder)
    (folder / "linked").symlink_to(mine)
    with pytest.raises(StageTaken, match="is a symbolic link"):
        make_room(link, replace=True)
    assert (folder / "keys").is_dir()
    make_room(folder, replace=True)
    assert (folder.exists(), (mine / "thesis.txt").exists()) == (False, True)


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
