"""A file that is there whole or not at all, however the process that makes it ends, and never over another."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from migrations.connect.errors import Absent, NotDone

_BESIDE = ("", "-wal", "-shm", "-journal")


@contextmanager
def arriving(path: Path) -> Iterator[Path]:
    """A name to write under; when the block ends well the file is durable and gets its own name, else it goes.

    A process that is killed leaves ``NAME.*.part`` behind, which anyone may delete.

    Raises:
        NotDone: if there is a file of that name, at the start or at the end.
        Absent: if there is no such folder.
    """
    if not path.parent.is_dir():
        raise Absent(f"there is no folder {path.parent}")
    if os.path.lexists(path):
        raise _taken(path)
    handle, name = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".part", dir=path.parent)
    part = Path(name)
    try:
        yield part
        _arrive(part, path, handle)
    finally:
        os.close(handle)
        for suffix in _BESIDE:
            Path(f"{part}{suffix}").unlink(missing_ok=True)


def _arrive(part: Path, path: Path, handle: int) -> None:
    os.fsync(handle)
    try:
        # Unlike a renaming, a link never replaces what has come in between.
        os.link(part, path)
    except FileExistsError:
        raise _taken(path) from None
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        part.unlink()
        os.fsync(folder)
    finally:
        os.close(folder)


def _taken(path: Path) -> NotDone:
    return NotDone(f"there is a file at {path} already, and nothing is written over")
