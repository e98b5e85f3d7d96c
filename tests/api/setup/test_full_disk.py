"""`epsilon up` on a disk that fills: one sentence, no traceback, and once there is room the folder is taken again.

The limit is one on the size of files (RLIMIT_FSIZE), which needs no privilege and ends a write as a full disk does.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from api.setup import development_folder as development
from tests.api.setup.recorded_kinds import MADE, recorded_kinds

NEW_PORTS: Final = ("--port", "0", "--issuer-port", "0")
BOOK: Final = 1 << 16
"""Less than an empty book."""
LIMITED: Final = """
import os, resource, sys
size = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""
SIZES: Final = (20, 100, 400, 700, BOOK, 214_000)
"""The mark, a key, the folder's own profile, the book, and entries do not fit."""


def _up(place: Path, size: int = resource.RLIM_INFINITY) -> subprocess.Popen[str]:
    ports = () if (place / "made" / development.MARK).exists() else NEW_PORTS
    return subprocess.Popen(
        [sys.executable, "-c", LIMITED, str(size), "-m", "epsilon_ledger", "up", "made", *ports],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )


def _ends_and_goes_on(place: Path, size: int) -> object:
    """What is on record once a start that had no room has ended, and the next one has served."""
    full = _up(place, size)
    said, _ = full.communicate(timeout=120)
    print(said)  # noqa: T201 - what a reader is told
    assert full.returncode not in {0, 1}, said
    assert "Traceback" not in said
    assert not [*place.rglob("*.part")]
    again = _up(place)
    assert again.stdout is not None
    assert any(line.endswith("until interrupted.\n") for line in again.stdout), again.wait()
    again.send_signal(signal.SIGINT)
    again.communicate()
    assert again.returncode == 0
    return recorded_kinds(place / "made" / "book.sqlite")


def test_a_disk_without_room_for_the_book_ends_with_a_sentence(tmp_path: Path) -> None:
    """Keys and profiles are there, the book is not; with room, the next start makes it."""
    assert _ends_and_goes_on(tmp_path, BOOK) == MADE


@pytest.mark.soak
@pytest.mark.parametrize("size", [one for one in SIZES if one != BOOK])
def test_a_disk_that_fills_at_any_file_ends_with_a_sentence(tmp_path: Path, size: int) -> None:
    """Whichever file is the one that does not fit."""
    assert _ends_and_goes_on(tmp_path, size) == MADE
