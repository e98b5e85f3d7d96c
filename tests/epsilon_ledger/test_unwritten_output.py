"""Output that nobody reads any more, or that has no room: the promised exit code, and one sentence at most."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from client.keys.signer import Signer

COMMANDS = (
    ("--help",),
    ("--version",),
    ("plan", "--help"),
    ("document", "schema", "policy"),
    ("job", "schema"),
    ("device",),
    ("key", "new", "made.pem"),
)


def _run(folder: Path, output: int, *words: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "epsilon_ledger", *words]
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, text=True, check=False
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_pipe_that_nobody_reads_ends_every_command_as_a_shell_expects(tmp_path: Path, words: tuple[str, ...]) -> None:
    """128 and the number of SIGPIPE, and no traceback, wherever the command prints."""
    read, write = os.pipe()
    os.close(read)
    try:
        code, said = _run(tmp_path, write, *words)
    finally:
        os.close(write)
    assert (code, "Traceback" in said, "Exception ignored" in said) == (141, False, False), said


@pytest.mark.parametrize("words", [("--help",), ("document", "schema", "policy")], ids=" ".join)
def test_output_without_room_is_a_sentence(tmp_path: Path, words: tuple[str, ...]) -> None:
    """A full disk is a temporary failure, and no error of this program."""
    with Path("/dev/full").open("wb") as full:
        found = _run(tmp_path, full.fileno(), *words)
    assert found == (75, "What was printed could not be written: No space left on device\n")


def test_a_new_keys_public_half_is_not_lost_with_the_output(tmp_path: Path) -> None:
    """The private key is there by then: what is registered of it goes to the terminal instead."""
    with Path("/dev/full").open("wb") as full:
        code, said = _run(tmp_path, full.fileno(), "key", "new", "made.pem")
    assert (code, "Traceback" in said) == (75, False), said
    assert str(Signer.load(tmp_path / "made.pem").jwk["x"]) in said
