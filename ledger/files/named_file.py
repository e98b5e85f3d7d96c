"""Files that somebody named: a name may be a symbolic link, or a pipe that nobody may ever write into."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO


def followed(path: Path) -> Path:
    """The file that a name leads to; the name itself, unless that is a symbolic link.

    A file beside it (a log, a lock) or a new one in its place belongs to the file and not to the link: SQLite names its
    write-ahead log after the file, and a rename replaces the link.
    """
    # Path.is_symlink raises where a folder may not be entered, Path.resolve in a loop: what opens the file reports it.
    return Path(os.path.realpath(path)) if os.path.islink(path) else path  # noqa: PTH114 - see above


def open_named(path: Path) -> BinaryIO:
    """Open a file to read its bytes. Raises: OSError.

    A pipe that has no writer is empty, where opening it as usual waits for one for ever; a shell's ``<(...)`` has one,
    and is waited for.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    os.set_blocking(file.fileno(), True)
    return file
