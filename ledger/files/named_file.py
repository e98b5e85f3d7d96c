"""Opening a file that somebody named for reading: it may be a pipe, and nobody may ever write into that."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO


def open_named(path: Path) -> BinaryIO:
    """Open a file to read its bytes. Raises: OSError.

    A pipe that has no writer is empty, where opening it as usual waits for one for ever; a shell's ``<(...)`` has one,
    and is waited for.
    """
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    os.set_blocking(file.fileno(), True)
    return file
