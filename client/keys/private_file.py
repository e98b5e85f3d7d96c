"""Files that only their owner may read: keys, and a stored login."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ledger.wire.malformed import Malformed


def read_private(path: Path | str, most: int, field: str = "key") -> bytes:
    """At most ``most`` bytes of a file that only its owner may read. Raises: Malformed, naming ``field``; OSError."""
    with Path(path).open("rb") as file:
        if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
            raise Malformed(field, f"the file {path} may be read by others: chmod 600 it")
        return file.read(most)
