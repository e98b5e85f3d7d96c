"""The newest checkpoint, kept in a file outside the book: restoring an older book is a budget reset.

A database cannot tell that it is an old copy of itself. So the writer keeps the newest signed checkpoint in a file
that backups of the book do not touch; and a book that is shorter than that, or does not begin with the same entries,
is not opened. The file is replaced whole and synchronised, at most once a second, and when the book is closed: a
power cut may leave it a second older than the book, never newer. Where there is none yet, the first opening makes it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from ledger.book.submitted_command import BookUnusable
from ledger.files.atomic_file import SHARED, replace_file
from ledger.log.verification import open_checkpoint
from ledger.store.snapshot import Snapshot
from ledger.verifier import LogKey, verify_consistency
from ledger.wire.malformed import Malformed

KEEP_S: Final = 1.0
"""The least time between two writings."""
NOTE_BYTES_MAX: Final = 65_536


class CheckpointFile:
    """A file that holds one signed checkpoint."""

    def __init__(self, path: Path, key: LogKey) -> None:
        """The file's place, and the key of the log whose checkpoint it holds."""
        self._path, self._key = path, key
        self._written: str | None = None
        self._next = 0.0
        self.note: str | None = None

    def check(self, book: Snapshot, root: bytes) -> None:
        """See that the book has grown from what is kept.

        Args:
            book: all of it; the stored nodes of its tree are believed only where they prove the root.
            root: over its entries.

        Raises:
            BookUnusable: if it is older than the checkpoint or has another history, or the file cannot be read.
        """
        self.note = book.checkpoint if book.size else None
        try:
            with self._path.open("rb") as file:
                self._written = file.read(NOTE_BYTES_MAX).decode()
            kept = open_checkpoint(self._written, self._key)
        except FileNotFoundError:
            return
        except (Malformed, UnicodeDecodeError, OSError) as error:
            raise BookUnusable(f"the checkpoint kept at {self._path} cannot be read: {error}") from None
        if kept.size > book.size:
            raise BookUnusable(
                f"the book has {book.size} entries, fewer than the {kept.size} under the checkpoint kept at "
                f"{self._path}: it is an older copy, which would give back what was charged since; "
                "put the newest copy in its place"
            )
        if kept.size and not verify_consistency(kept.size, book.size, book.consistency(kept.size), kept.root, root):
            raise BookUnusable(
                f"the first {kept.size} entries of the book are not those under the checkpoint kept at {self._path}: "
                "it has another history; find the book that was kept, and give both checkpoints to an auditor"
            )

    def due_s(self) -> float:
        """How long until a checkpoint is to be written; more than anyone waits if there is no newer one."""
        if self.note is None or self.note == self._written:
            return float("inf")
        return max(0.0, self._next - time.monotonic())

    def write(self) -> None:
        """Replace the file by the newest checkpoint. Raises: OSError."""
        if self.note is None or self.note == self._written:
            return
        note = self.note
        replace_file(self._path, note.encode(), mode=SHARED)
        self._written, self._next = note, time.monotonic() + KEEP_S
