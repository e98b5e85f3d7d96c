"""A pipe in place of a file: no command waits for somebody to write into it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.factories.people import LOG
from tests.factories.stored import open_world

COMMANDS = (
    "db status pipe",
    "db check pipe --log log.vkey",
    "db upgrade pipe --log log.vkey",
    "db restore pipe new.sqlite --log log.vkey --without-kept",
    "verify book.sqlite --kept pipe",
    "verify book.sqlite --log pipe",
    "db check book.sqlite --kept pipe",
    "document check pipe",
    "policy impact book.sqlite pipe",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed book, and a pipe that nobody writes into."""
    place = tmp_path_factory.mktemp("pipes")
    with open_world(place) as world:
        world.submit(world.charge("run-1"))
    (place / "log.vkey").write_text(f"{LOG.vkey}\n")
    os.mkfifo(place / "pipe")
    return place


@pytest.mark.parametrize(
    "command",
    [pytest.param(command, marks=[] if n % 2 == 0 else pytest.mark.soak) for n, command in enumerate(COMMANDS)],
)
def test_it_is_refused_at_once(folder: Path, command: str) -> None:
    """In a sentence, with the exit code of what is wrong with a file."""
    words = [sys.executable, "-m", "epsilon_ledger", *command.split()]
    done = subprocess.run(
        words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=50
    )
    assert done.returncode in {2, 4, 5}, done.stderr
    assert (bool(done.stderr + done.stdout), "Traceback" in done.stderr) == (True, False)


def test_a_shells_own_pipe_is_read(folder: Path) -> None:
    """``<(...)`` has a writer, which is waited for."""
    line = f"{sys.executable} -m epsilon_ledger verify book.sqlite --log <(cat log.vkey)"
    done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, check=False, timeout=50)
    assert (done.returncode, done.stdout[:9]) == (0, "verified:"), done.stderr
