"""The user's state folder, and that no test writes to the one in a home folder."""

from __future__ import annotations

import stat
import subprocess
import sys
import threading
from pathlib import Path
from tempfile import gettempdir

import pytest

from ledger.files.file_update import locked
from ledger.files.state_folder import state_folder

_PRINT = "from ledger.files.state_folder import state_folder; print(state_folder())"
_BEFORE_ANY_TEST = state_folder()


def test_no_test_writes_to_a_home_folder() -> None:
    """Not this process, not one that it starts, not what is imported before the first test."""
    temporary = Path(gettempdir())
    reported = subprocess.run([sys.executable, "-c", _PRINT], capture_output=True, text=True, check=True).stdout
    for one in (state_folder(), Path(reported.strip()), _BEFORE_ANY_TEST):
        assert one.is_relative_to(temporary)
        assert not one.is_relative_to(Path.home())
    assert Path(reported.strip()) == state_folder() != _BEFORE_ANY_TEST


def test_a_process_that_knows_no_home_has_no_state_folder() -> None:
    """A test that starts a process without its environment does not reach the home folder of the password file."""
    done = subprocess.run([sys.executable, "-c", _PRINT], capture_output=True, text=True, check=False, env={})
    assert done.returncode == 1
    assert "set XDG_STATE_HOME or HOME" in done.stderr


def test_the_variables_of_the_standard(monkeypatch: pytest.MonkeyPatch) -> None:
    """XDG_STATE_HOME if it is absolute; a relative one is ignored, as the specification has it."""
    monkeypatch.setenv("HOME", "/homes/asha")
    for value, folder in (
        ("/var/state", "/var/state/epsilon-ledger"),
        ("state", "/homes/asha/.local/state/epsilon-ledger"),
        ("", "/homes/asha/.local/state/epsilon-ledger"),
    ):
        monkeypatch.setenv("XDG_STATE_HOME", value)
        assert state_folder() == Path(folder)
    monkeypatch.delenv("XDG_STATE_HOME")
    assert state_folder() == Path("/homes/asha/.local/state/epsilon-ledger")


def test_one_process_at_a_time_changes_a_file(tmp_path: Path) -> None:
    """Threads exclude each other too; the folder is made, for its owner alone."""
    path, begun, order = tmp_path / "new" / "file", threading.Event(), list[str]()

    def second() -> None:
        begun.set()
        with locked(path):
            order.append("second")

    thread = threading.Thread(target=second)
    with locked(path):
        thread.start()
        assert begun.wait(60)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
