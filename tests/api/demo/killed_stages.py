"""Demonstrations that are killed while they take a folder: ``python -m tests.api.demo.killed_stages FOLDER MADE``.

Each is a fork that replaces what an earlier one left in ``FOLDER`` and is killed where it gives or takes a name in the
file system: the first at the first such moment, the next at the second, until one ends by itself. After each of them
the next takes the folder as it is; ``MADE`` says whether a whole demonstration is put there before each.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from api.demo.stage import make_room, prepare
from tests.killed_forks import killed_forks

NAMES_CHANGED: Final = frozenset({"os.mkdir", "os.remove", "os.rmdir", "open"})


def take(folder: Path) -> None:
    """What a demonstration with ``--replace`` does first."""
    make_room(folder, replace=True)
    prepare(folder)


def live(folder: Path) -> None:
    """What a demonstration leaves."""
    (folder / "keys" / "log.pem").write_text("key", encoding="ascii")
    for name in ("book.sqlite", ".a", "zebra", "profile.toml"):
        (folder / name).write_text(name, encoding="ascii")


def main(folder: Path, *, made: bool) -> None:
    """Fork until one is not killed, and write how many there were."""
    number = 0
    for number in killed_forks(NAMES_CHANGED, lambda _: take(folder)):
        if number > 1:
            take(folder)
        if made:
            take(folder)
            live(folder)
        elif number > 1:
            make_room(folder, replace=True)
    sys.stdout.write(f"{number}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), made=sys.argv[2] == "made")
