"""Processes that fill a fresh folder and are killed: ``python -m tests.ledger.files.killed_writers FOLDER``.

Each is a fork that is killed where it gives or takes a name in the file system: the first at the first such moment, the
next at the second, until one ends by itself. They make ``FOLDER/1``, ``FOLDER/2`` and so on.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Final

from ledger.files.atomic_file import create_file
from ledger.files.fresh_folder import fresh_folder

NAMES_CHANGED: Final = frozenset({"os.link", "os.mkdir", "os.remove", "os.rename", "shutil.rmtree"})
CONTENTS: Final = {"share/a": b"a" * 10_000, "share/b": b"b", "c": b"c"}
"""What each writes."""


def _write(folder: Path) -> None:
    with fresh_folder(folder, "--out") as made:
        (made / "share").mkdir()
        for name, data in CONTENTS.items():
            create_file(made / name, data)


def _write_until(moment: int, folder: Path) -> None:
    left = moment

    def audit(name: str, _: object) -> None:
        nonlocal left
        if name in NAMES_CHANGED:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)
    _write(folder)


def main(folder: Path) -> None:
    """Fork until one is not killed."""
    for moment in count(1):
        child = os.fork()
        if not child:
            _write_until(moment, folder / str(moment))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            assert os.WEXITSTATUS(status) == 0
            return
        assert os.WTERMSIG(status) == signal.SIGKILL


if __name__ == "__main__":
    main(Path(sys.argv[1]))
