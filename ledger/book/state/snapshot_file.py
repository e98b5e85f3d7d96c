"""The file with the newest snapshot of the state, from which a book is opened without reading its whole log.

It is written by a thread of its own, from a tree that a recorded statement describes and that no one changes any more:
after so many entries, and when the book is closed. A book that is opened reads it, and believes it only if its root
follows from its bytes and a statement of the log says the same one; without it, the whole log is read. So anyone who
changes or removes the file, or puts another one there, makes an opening slower and nothing else.

The file holds what the book holds, so only its owner may read it.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Final

from ledger.book.state.state_statements import StatedTree
from ledger.files.atomic_file import remove_leftovers, replace_file
from ledger.files.state_folder import state_folder
from ledger.state_tree.snapshot_format import StateSnapshot, read_snapshot, write_snapshot
from ledger.store.engine import sqlite_file, url_of
from ledger.verifier import LogKey
from ledger.wire.malformed import Malformed

SNAPSHOT_BYTES_MAX: Final = 1 << 30
"""A state of more bytes has no snapshot: about 30 million entries."""
EVERY: Final = 16_384
"""Entries after which a snapshot is written, and one more for each record of the last one and for every 64 entries of
the log: so each entry pays for a bounded part of the next snapshot."""
EVERY_CLOSING: Final = 1_024
"""The same when the book is closed: fewer are read as quickly as the file."""
_SHARE: Final = 64
_LOG: Final = logging.getLogger("ledger.book")


def snapshot_path(url: str, key: LogKey) -> Path:
    """The file of a book whose operator named none: beside an SQLite file, else in the user's state folder.

    Args:
        url: of the book's database.
        key: the log's, whose digest is the file's name in the state folder.

    Raises:
        FileNotFoundError: if there is no folder for this user's state.
    """
    file = sqlite_file(url_of(url))
    if file is not None:
        return file.with_name(f"{file.name}.snapshot")
    return state_folder() / "snapshots" / sha256(key.vkey.encode()).hexdigest()


class SnapshotFile:
    """The file of one log's snapshot, for the writing thread of a process."""

    def __init__(self, path: Path, key: LogKey) -> None:
        """The file's place, and the log that it is of."""
        self._path, self._log = path, key.vkey
        self._thread = ThreadPoolExecutor(1, "state-snapshot")
        self._writing: Future[None] | None = None
        self._size, self._records = 0, 0

    def read(self) -> StateSnapshot | None:
        """The snapshot, its root recomputed; None if there is no file. What a killed process left of one is removed.

        Raises:
            Malformed: if it cannot be read, is torn, or is of another log or version.
        """
        remove_leftovers(self._path)
        try:
            data = self._bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Malformed("", f"cannot be read: {error.strerror or error}") from None
        return read_snapshot(data, self._log)

    def _bytes(self) -> bytes:
        # Without waiting: a pipe of this name would never end.
        descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode) or about.st_size > SNAPSHOT_BYTES_MAX:
                raise Malformed("", f"is no file of at most {SNAPSHOT_BYTES_MAX} bytes")
            return file.read(SNAPSHOT_BYTES_MAX)

    @staticmethod
    def is_expected(size: int) -> bool:
        """Whether a log of this size has a snapshot, unless it was removed."""
        return size >= EVERY_CLOSING

    def believed(self, snapshot: StateSnapshot) -> None:
        """Note that the book was opened from what is in the file."""
        self._size = snapshot.size

    def offer(self, stated: StatedTree | None, *, closing: bool = False) -> None:
        """Begin to write the newest stated tree, whose statement is committed, if one is due."""
        if stated is None or (self._writing is not None and not self._writing.done()):
            return
        due = EVERY_CLOSING if closing else EVERY + stated.size // _SHARE + self._records
        if stated.size - self._size >= due:
            # Also if it fails, so that a full disk is not tried again with every commit.
            self._size = stated.size
            self._writing = self._thread.submit(self._write, stated)

    def close(self, stated: StatedTree | None) -> None:
        """Write the last stated tree, if it is worth it, and end the thread."""
        if self._writing is not None:
            self._writing.result()
        self.offer(stated, closing=True)
        self._thread.shutdown()

    def _write(self, stated: StatedTree) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._path, self._pieces(stated))
        except (OSError, OverflowError) as error:
            _LOG.warning("no snapshot of the state was written to %s: %s", self._path, error)

    def _pieces(self, stated: StatedTree) -> Iterator[bytes]:
        records, size = -2, 0
        for piece in write_snapshot(self._log, stated.size, stated.tree, stated.names):
            size += len(piece)
            records += 1
            if size > SNAPSHOT_BYTES_MAX:
                raise OverflowError(f"it would have more than {SNAPSHOT_BYTES_MAX} bytes")
            yield piece
        self._records = records
