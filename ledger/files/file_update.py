"""Read, decide and replace one small file, one process at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file (flock on ``.NAME.lock`` beside it); its folder is created if missing.

    Every process and thread that changes the file holds it meanwhile; readers need no lock, since the file is
    replaced whole (:mod:`ledger.files.atomic_file`). The lock file stays: removing it would let two processes in.

    Raises:
        OSError: if the folder cannot be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
