"""The newest checkpoint, kept in a file outside the book: restoring an older book is a budget reset.

A database cannot detect that it is an old copy of itself. So the writer keeps the newest signed checkpoint in a file
that backups of the book do not touch; and a book that is shorter than that, or does not begin with the same entries,
is not opened. Nor is a book with entries whose file is missing, unless its operator says that this is its first start.

A file that bears the name of the log's key (:func:`default_path`) may be missing because that key is new: then the
file of an earlier key, to which the log's own rotations lead, is what was kept. It is removed once the new one is
written, so that no deletion of that goes back to it.

The file is replaced whole and synchronised when the book is opened, at most once a second, and when it is closed: a
power cut may leave it a second older than the book, never newer.

A copy of the book that is open at the same time would spend the same budget again. The process that writes an SQLite
book holds the file meanwhile (flock on ``.NAME.book.lock`` beside it, for as long as the book's own lock), so no second
book of this log is open by the same file. Processes that write one PostgreSQL book may share the file. Whichever it is:
a process that finds a checkpoint there that its own book never had stops, and leaves it.

A symbolic link is followed to the file: to replace the link would keep the newest checkpoint where the link lies, and
an old one at its end. A file with a second hard link is refused: the other name would keep an old one.
"""

from __future__ import annotations

import logging
import re
import shlex
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, Self

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from ledger.book.submitted_command import BookUnusable
from ledger.files.atomic_file import SHARED, replace_file
from ledger.files.file_update import locked
from ledger.files.named_file import followed
from ledger.files.state_folder import state_folder
from ledger.log.checkpoint import LogSigner
from ledger.log.verification import open_checkpoint
from ledger.store.log_key.rotation_proofs import Trust, rotation_places, trusted
from ledger.store.snapshot import Log, Snapshot
from ledger.store.sqlite_file.file_lock import FileLock, LockHeldError
from ledger.verifier import Checkpoint, LogKey, Policy, verify_consistency
from ledger.wire.malformed import Malformed

KEEP_S: Final = 1.0
"""The least time between two writings."""
NOTE_BYTES_MAX: Final = 65_536
_LOG: Final = logging.getLogger("ledger.rollback")


def default_path(key: LogKey) -> Path:
    """The file of a log whose operator named none: in the user's state folder, by the digest of the log's key."""
    return state_folder() / "kept-checkpoints" / _name(key)


def keep_checkpoint(path: Path, note: str, origin: str, reads: Engine) -> None:
    """Keep a signed checkpoint in a file that no :class:`CheckpointFile` has open, unless it holds a newer one.

    Args:
        path: of the file.
        note: a checkpoint that the book has.
        origin: the log's name.
        reads: reads the book.

    Raises:
        BookUnusable: if the file holds anything but a checkpoint that the book had, which stays there, or cannot be
            read or written; if the book cannot be read.
    """
    stated = stated_size(note, origin)
    assert stated is not None, "our own checkpoint states its size"
    path = hold(path, None)
    try:
        with locked(path):
            try:
                found = _read(path)
            except UnicodeDecodeError:
                found = ""
            if found is not None:
                size = stated_size(found, origin)
                if size is None:
                    raise BookUnusable(f"{path} holds something else than a checkpoint of {origin}, and it stays there")
                entries = _size_without(found, size, origin, reads)
                if entries is not None:
                    raise BookUnusable(
                        f"{path} holds a checkpoint of {size} entries that this book of {entries} never had, and it "
                        "stays there: find out which other book is kept there, and what each recorded"
                    )
                if size > stated:
                    return
            replace_file(path, note.encode(), mode=SHARED)
    except OSError as error:
        raise BookUnusable(f"the newest checkpoint cannot be kept at {path}: {error.strerror}") from None
    except SQLAlchemyError as error:
        raise BookUnusable(_unreachable(error)) from None


def hold(path: Path, lock: FileLock | None) -> Path:
    """Let no second SQLite book be open whose newest checkpoint is kept in this file; the file past symbolic links.

    Args:
        path: of the file that holds the checkpoint.
        lock: the lock of the book, with which this one ends; None on PostgreSQL, where processes share the file.

    Raises:
        BookUnusable: if another process holds it, it has a second hard link, or the folder cannot be written.
    """
    file = followed(path)
    try:
        if file.is_file() and file.stat().st_nlink > 1:
            raise BookUnusable(
                f"{file} keeps the newest checkpoint and has a second hard link, which would keep an old one: remove "
                f"the other names ('find / -samefile {shlex.quote(str(file))}' finds them)"
            )
        if lock is not None:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock.hold(file.with_name(f".{file.name}.book.lock"))
    except LockHeldError:
        raise BookUnusable(
            f"another process has a book open whose newest checkpoint is kept at {path}: one of the two is a copy, and "
            "together they would spend one budget twice. Stop the other one first"
        ) from None
    except OSError as error:
        raise BookUnusable(f"the newest checkpoint cannot be kept at {path}: {error.strerror}") from None
    return file


def stated_size(note: str, origin: str) -> int | None:
    """The size that a checkpoint of this log states, whichever key signed it; None if it is none of this log."""
    found = re.match(rf"{re.escape(origin)}\n(0|[1-9][0-9]{{0,15}})\n", note)
    return None if found is None else int(found[1])


def _size_without(found: str, size: int, origin: str, reads: Engine) -> int | None:
    """How many entries a book has that never had a checkpoint, whichever key signed it; None if it had it.

    Raises:
        SQLAlchemyError: if the book cannot be read.
    """
    with reads.begin() as connection:
        log = Log(connection)
        with suppress(KeyError):
            if found.startswith(Checkpoint(origin, size, log.root_at(size)).text):
                return None
        return log.size


def _unreachable(error: SQLAlchemyError) -> str:
    return f"the database cannot be reached: {str(getattr(error, 'orig', None) or error).strip()}"


def _name(key: LogKey) -> str:
    return sha256(key.vkey.encode()).hexdigest()


class CheckpointFile:
    """A file that holds one signed checkpoint."""

    def __init__(
        self, path: Path, signer: LogSigner, reads: Engine, lock: FileLock | None, *, first_start: bool = False
    ) -> None:
        """The file's place, and the log whose checkpoint it holds.

        Args:
            path: of the file.
            signer: of the log; it signs the checkpoint of an empty book.
            reads: reads the book.
            lock: of the book, if one process alone writes it: then it alone has the file.
            first_start: whether the file may be missing although the book has entries.

        Raises:
            BookUnusable: if another process has the file, or it has a second hard link.
        """
        self._path, self._named = hold(path, lock), path
        self._signer, self._first_start = signer, first_start
        self._reads, self._lock = reads, lock
        self._written: str | None = None
        self._found: str | None = None
        self._earlier: tuple[Path, ...] = ()
        self._next = 0.0
        self.note: str | None = None

    @classmethod
    def of(
        cls, path: Path | None, signer: LogSigner, reads: Engine, lock: FileLock | None, *, first_start: bool = False
    ) -> Self | None:
        """The same; None where no checkpoint is kept. Raises: BookUnusable."""
        return None if path is None else cls(path, signer, reads, lock, first_start=first_start)

    def check(self, book: Snapshot, root: bytes) -> None:
        """See that the book has grown from what is kept.

        Args:
            book: all of it; the stored nodes of its tree are believed only where they prove the root.
            root: over its entries.

        Raises:
            BookUnusable: if it is older than the checkpoint or has another history, or the file cannot be read, or is
                missing although the book has entries, or another process has the file of an earlier key.
        """
        key = self._signer.key
        self.note = book.checkpoint if book.size else self._signer.sign(0, root)
        try:
            self._written = self._found = _read(self._path)
            trust = trusted(book.connection, key, rotation_places(book))
            self._earlier = self._earlier_files(trust)
            for path in self._earlier:
                hold(path, self._lock)
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
            BookUnusable: if the file cannot be written, or holds by now what is not of this book.
        """
        try:
            self.write()
            for path in self._earlier:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise BookUnusable(f"the newest checkpoint cannot be kept at {self._path}: {error.strerror}") from None
        except SQLAlchemyError as error:
            raise BookUnusable(_unreachable(error)) from None

    def due_s(self) -> float:
        """How long until a checkpoint is to be written; more than anyone waits if there is no newer one."""
        if self.note is None or self.note == self._written:
            return float("inf")
        return max(0.0, self._next - time.monotonic())

    def write(self) -> None:
        """Replace the file by the newest checkpoint, unless another process of this book has kept a newer one.

        Raises:
            BookUnusable: if a checkpoint is there that this book never had; it stays there.
            OSError: if the file cannot be written.
            SQLAlchemyError: if the book cannot be read, to compare what another process wrote; it may be tried again.
        """
        if self.note is None or self.note == self._written:
            return
        note = self.note
        self._next = time.monotonic() + KEEP_S
        with locked(self._path):
            found = self._text_now()
            # Whichever key signed it: another process may have the key that replaced this one.
            size = None if found is None else stated_size(found, self._signer.key.name)
            if found is not None and size is not None and found != self._found:
                self._check_own(found, size)
            if size is None or size <= open_checkpoint(note, self._signer.key).size:
                replace_file(self._path, note.encode(), mode=SHARED)
                found = note
        self._written, self._found, self._next = note, found, time.monotonic() + KEEP_S

    def _check_own(self, found: str, size: int) -> None:
        """Check that the book once had what another process wrote. Raises: BookUnusable, SQLAlchemyError."""
        entries = _size_without(found, size, self._signer.key.name, self._reads)
        if entries is not None:
            why = (
                f"the checkpoint of {size} entries kept at {self._path} is not of this book of {entries}: a copy of "
                "it was opened elsewhere, and both spend one budget. Stop both, and compare what each recorded"
            )
            _LOG.error("%s", why)
            raise BookUnusable(why)

    def _earlier_files(self, trust: Trust) -> tuple[Path, ...]:
        """Where the checkpoint was kept under the keys that the log had before."""
        key = self._signer.key
        if not isinstance(trust, Policy) or self._named.name != _name(key):
            return ()
        return tuple(self._named.with_name(_name(one)) for one in trust.logs if one != key)

    def _text_now(self) -> str | None:
        """What is there; None for what is no text, too: it was read when the book was opened, the newest is here."""
        try:
            return _read(self._path)
        except UnicodeDecodeError:
            return None


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(NOTE_BYTES_MAX).decode()
    except FileNotFoundError:
        return None
