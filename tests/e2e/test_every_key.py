"""The script that rotates and revokes every role's key, in processes of their own; and that it goes by the commands."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from typer.main import get_command

from epsilon_ledger.__main__ import assemble

SCRIPT: Final = Path(__file__).parents[2] / "docs" / "examples" / "every_key.sh"
TOUCHED: Final = ("pending runs that it touches: 2: long, waiting", "pending runs that it touches: 1: later")


def _free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


@pytest.mark.soak
def test_every_key_is_rotated_and_revoked(tmp_path: Path) -> None:
    """It ends with 0, which it does only if what must be refused was; and it has shown the runs that are touched."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["bash", str(SCRIPT), str(tmp_path / "made"), *map(str, _free_ports())]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-4_000:]
    assert [one for one in TOUCHED if one not in done.stdout] == []
    assert done.stdout.rstrip().endswith("Every key was replaced, and no revoked one signed anything")


def test_each_command_of_the_script_takes_its_options() -> None:
    """So that a command that changes is noticed before the script is run."""
    lines = re.findall(r"(?:^|[ $(])epsilon ([a-z-]+(?: [a-z-]+)*)([^|>\n]*)", SCRIPT.read_text(), re.MULTILINE)
    assert len(lines) > 40
    for words, rest in lines:
        first, *others = words.split()
        command = get_command(assemble(first))
        for word in (first, *others):
            command = getattr(command, "commands", {}).get(word, command)
        known = {option for one in command.params for option in one.opts}
        assert set(re.findall(r"(?<= )--[a-z-]+", rest)) <= known, (words, rest)
