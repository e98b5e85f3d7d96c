"""What surrounds a command and is no good: a name that is not UTF-8, and no folder for a user's state."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.factories.people import LOG
from tests.factories.stored import open_world


def _run(folder: Path, *words: bytes, without: tuple[str, ...] = ()) -> tuple[int, str]:
    env = {name: value for name, value in os.environ.items() if name not in without}
    command = [os.fsencode(sys.executable), b"-m", b"epsilon_ledger", *words]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, check=False, timeout=50)
    return done.returncode, (done.stdout + done.stderr).decode()


@pytest.mark.parametrize("command", [(b"verify", b"%b", b"--log", b"log.vkey"), (b"demo", b"%b-demo")])
def test_a_name_that_is_not_utf_8_is_called_so(tmp_path: Path, command: tuple[bytes, ...]) -> None:
    """A sentence with the name, escaped, instead of the message of a codec or a traceback."""
    with open_world(tmp_path) as world:
        world.submit(world.charge("run-1"))
    (tmp_path / "log.vkey").write_text(f"{LOG.vkey}\n")
    odd = b"\xff\xfe.sqlite"
    world.path.rename(os.fsdecode(os.fsencode(tmp_path) + b"/" + odd))
    code, said = _run(tmp_path, *(word.replace(b"%b", odd) for word in command))
    assert (code, said.count("\n"), "codec" in said) == (2, 1, False), said
    assert r"\udcff\udcfe.sqlite" in said
    assert "is not UTF-8" in said


def test_without_a_folder_for_state_the_variables_are_named(tmp_path: Path) -> None:
    """No file is to be checked, which the error does not name."""
    code, said = _run(
        tmp_path, b"up", b"made", b"--port", b"0", b"--issuer-port", b"0", without=("HOME", "XDG_STATE_HOME")
    )
    assert code == 4, said
    assert "environment: there is no folder for this user's state: set XDG_STATE_HOME or HOME\n" in said
    assert said.endswith("Nothing was recorded: set one of them and retry.\n")
