"""Processes that fill a fresh folder and are killed: ``python -m tests.ledger.files.killed_writers FOLDER``.

Each is a fork that is killed where it gives or takes a name in the file system: the first at the first such moment, the
next at the second, until one ends by itself. They make ``FOLDER/1``, ``FOLDER/2`` and so on.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from ledger.files.atomic_file import create_file
from ledger.files.fresh_folder import fresh_folder
from tests.killed_forks import killed_forks

NAMES_CHANGED: Final = frozenset({"os.link", "os.mkdir", "os.remove", "os.rename", "shutil.rmtree"})
CONTENTS: Final = {"share/a": b"a" * 10_000, "share/b": b"b", "c": b"c"}
"""What each writes."""


def _write(folder: Path) -> None:
    with fresh_folder(folder, "--out") as made:
        (made / "share").mkdir()
        for name, data in CONTENTS.items():
            create_file(made / name, data)


def main(folder: Path) -> None:
    """Fork until one is not killed."""
    for _ in killed_forks(NAMES_CHANGED, lambda number: _write(folder / str(number))):
        pass


if __name__ == "__main__":
    main(Path(sys.argv[1]))
