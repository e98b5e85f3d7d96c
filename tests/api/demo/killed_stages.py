"""Demonstrations that are killed while they take a folder: ``python -m tests.api.demo.killed_stages FOLDER MADE``.

Each is a fork that replaces what an earlier one left in ``FOLDER`` and is killed where it gives or takes a name in the
file system: the first at the first such moment, the next at the second, until one ends by itself. After each of them
the next takes the folder as it is; ``MADE`` says whether a whole demonstration is put there before each.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Final

from api.demo.stage import make_room, prepare

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


def _take_until(moment: int, folder: Path) -> None:
    left = moment

    def audit(name: str, _: object) -> None:
        nonlocal left
        if name in NAMES_CHANGED:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)
    take(folder)


def main(folder: Path, *, made: bool) -> None:
    """Fork until one is not killed."""
    for moment in count(1):
        if made:
            take(folder)
            live(folder)
        child = os.fork()
        if not child:
            _take_until(moment, folder)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            assert os.WEXITSTATUS(status) == 0
            sys.stdout.write(f"{moment}\n")
            return
        assert os.WTERMSIG(status) == signal.SIGKILL
        take(folder)
        if not made:
            make_room(folder, replace=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), made=sys.argv[2] == "made")
