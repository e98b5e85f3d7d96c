"""Files that only their owner may read: keys, and what a login leaves."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from ledger.wire.malformed import Malformed


def read_private(path: Path | str, most: int, field: str = "key") -> bytes:
    """At most ``most`` bytes of a file that nobody else may read. Raises: Malformed, naming ``field``; OSError."""
    with Path(path).open("rb") as file:
        if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
            raise Malformed(field, f"the file {path} may be read by others: chmod 600 it")
        return file.read(most)


def write_private(path: Path, data: bytes) -> None:
    """Write a file of mode 0600 whole, in place of the one that was there, or leave that as it is. Raises: OSError."""
    # mkstemp makes it with mode 0600; a reader sees the old file or the new one, never a part.
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
