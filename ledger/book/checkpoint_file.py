"""The newest checkpoint, kept in a file outside the book: restoring an older book is a budget reset.

A database cannot detect that it is an old copy of itself. So the writer keeps the newest signed checkpoint in a file
that backups of the book do not touch; and a book that is shorter than that, or does not begin with the same entries,
is not opened. Nor is a book with entries whose file is missing, unless its operator says that this is its first start.

A file that bears the name of the log's key (:func:`default_path`) may be missing because that key is new: then the
file of an earlier key, to which the log's own rotations lead, is what was kept. It is removed once the new one is
written, so that no deletion of that goes back to it.

The file is replaced whole and synchronised when the book is opened, at most once a second, and when it is closed: a
power cut may leave it a second older than the book, never newer. Processes that write one PostgreSQL book may share it.
"""

from __future__ import annotations

import logging
import time
from hashlib import sha256
from pathlib import Path
from typing import Final

from ledger.book.submitted_command import BookUnusable
from ledger.files.atomic_file import SHARED, replace_file
from ledger.files.file_update import locked
from ledger.files.state_folder import state_folder
from ledger.log.checkpoint import LogSigner
from ledger.log.verification import open_checkpoint
from ledger.store.log_key.rotation_proofs import Trust, rotation_places, trusted
from ledger.store.snapshot import Snapshot
from ledger.verifier import LogKey, Policy, verify_consistency
from ledger.wire.malformed import Malformed

KEEP_S: Final = 1.0
"""The least time between two writings."""
NOTE_BYTES_MAX: Final = 65_536
_LOG: Final = logging.getLogger("ledger.rollback")


def default_path(key: LogKey) -> Path:
    """The file of a log whose operator named none: in the user's state folder, by the digest of the log's key."""
    return state_folder() / "kept-checkpoints" / _name(key)


def keep_checkpoint(path: Path, note: str) -> None:
    """Replace the file that holds the newest checkpoint by a signed one. Raises: BookUnusable."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, note.encode(), mode=SHARED)
    except OSError as error:
        raise BookUnusable(f"the newest checkpoint cannot be kept at {path}: {error.strerror}") from None


def _name(key: LogKey) -> str:
    return sha256(key.vkey.encode()).hexdigest()


class CheckpointFile:
    """A file that holds one signed checkpoint."""

    def __init__(self, path: Path, signer: LogSigner, *, first_start: bool = False) -> None:
        """The file's place, and the log whose checkpoint it holds.

        Args:
            path: of the file.
            signer: of the log; it signs the checkpoint of an empty book.
            first_start: whether the file may be missing although the book has entries.
        """
        self._path, self._signer, self._first_start = path, signer, first_start
        self._written: str | None = None
        self._earlier: tuple[Path, ...] = ()
        self._next = 0.0
        self.note: str | None = None

    def check(self, book: Snapshot, root: bytes) -> None:
        """See that the book has grown from what is kept.

        Args:
            book: all of it; the stored nodes of its tree are believed only where they prove the root.
            root: over its entries.

        Raises:
            BookUnusable: if it is older than the checkpoint or has another history, or the file cannot be read, or is
                missing although the book has entries.
        """
        key = self._signer.key
        self.note = book.checkpoint if book.size else self._signer.sign(0, root)
        try:
            self._written = _read(self._path)
            trust = trusted(book.connection, key, rotation_places(book))
            self._earlier = self._earlier_files(trust)
            notes = [one for one in (self._written, *map(_read, self._earlier)) if one is not None]
            kept = max((open_checkpoint(one, trust) for one in notes), key=lambda one: one.size, default=None)
        except (Malformed, UnicodeDecodeError, OSError) as error:
            raise BookUnusable(f"the checkpoint kept at {self._path} cannot be read: {error}") from None
        if kept is None:
            if book.size and not self._first_start:
                raise BookUnusable(
                    f"there is no checkpoint kept at {self._path}, so whether this book of {book.size} entries is the "
                    "newest copy is unknown: put that file back, or, if the book was never served from here, start "
                    "once with --first-start"
                )
            if book.size:
                _LOG.warning(
                    "first start: this book of %d entries is taken for the newest copy; no checkpoint was kept at %s",
                    book.size,
                    self._path,
                )
            return
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

    def begin(self) -> None:
        """Write the checkpoint of the book as it was opened, so that no entry precedes the file.

        Raises:
            BookUnusable: if the file cannot be written.
        """
        try:
            self.write()
            for path in self._earlier:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise BookUnusable(f"the newest checkpoint cannot be kept at {self._path}: {error.strerror}") from None

    def due_s(self) -> float:
        """How long until a checkpoint is to be written; more than anyone waits if there is no newer one."""
        if self.note is None or self.note == self._written:
            return float("inf")
        return max(0.0, self._next - time.monotonic())

    def write(self) -> None:
        """Replace the file by the newest checkpoint, unless another process has kept a newer one. Raises: OSError."""
        if self.note is None or self.note == self._written:
            return
        note = self.note
        with locked(self._path):
            if self._size_now() <= open_checkpoint(note, self._signer.key).size:
                replace_file(self._path, note.encode(), mode=SHARED)
        self._written, self._next = note, time.monotonic() + KEEP_S

    def _earlier_files(self, trust: Trust) -> tuple[Path, ...]:
        """Where the checkpoint was kept under the keys that the log had before."""
        key = self._signer.key
        if not isinstance(trust, Policy) or self._path.name != _name(key):
            return ()
        return tuple(self._path.with_name(_name(one)) for one in trust.logs if one != key)

    def _size_now(self) -> int:
        try:
            note = _read(self._path) or ""
            # Whichever key signed it: another process may have the key that replaced this one.
            origin, size, _ = note.split("\n", 2)
            return int(size) if origin == self._signer.key.name else 0
        except ValueError:
            # It was read when the book was opened; whatever broke it since, the newest checkpoint is here.
            return 0


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(NOTE_BYTES_MAX).decode()
    except FileNotFoundError:
        return None
