"""The lock of the one process that writes an SQLite book: one process, whatever names its file has.

Two lock files are held (flock, which the kernel releases when the process ends). One lies beside the book, where every
program looks: beside the file, where the path is a symbolic link to it. The other lies in a folder of the user and is
named by device and inode, so that a second path to the same file (a mount) finds it. A second hard link is refused:
SQLite names its write-ahead log after the path, so two names of one file are two logs, and each would lose what the
other committed. Only the part of a command that was killed when the new book just had its name is removed instead.

Locks do not reach another host or container. So the process that holds them begins an epoch in the book, and compares
it, and the file's device and inode, before each batch (:mod:`ledger.store.sqlite_file.writer_epoch`).

The database file itself is never opened here: in WAL mode one ``open`` and ``close`` of it by the same process drops
SQLite's own locks (POSIX advisory locks belong to the process).
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import stat
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Engine

from ledger.files.atomic_file import other_names, remove_second_names
from ledger.files.named_file import followed
from ledger.files.state_folder import state_folder
from ledger.store.sqlite_file.mounted_filesystem import check_filesystem
from ledger.store.sqlite_file.writer_epoch import WriterEpoch


class LockHeldError(Exception):
    """Another process has the book open for writing."""


class FileChangedError(Exception):
    """The path leads to another file than the one that was locked, the file has a second name, or another writer."""


class FileLock:
    """A lock that is held; :meth:`release` ends it."""

    def __init__(self, path: Path) -> None:
        """Lock the book at a path, at once or not at all; a book that is still to be made is locked by its path.

        Raises:
            LockHeldError: if another process holds the lock.
            FileChangedError: if the file has a second hard link, or is a folder.
            FilesystemRefusedError: if it lies on a filesystem that may lose what was committed.
            OSError: if a lock file cannot be written.
        """
        self._path = path = followed(path)
        self._locks: list[int] = []
        self._named_by_identity: Path | None = None
        self._epoch: WriterEpoch | None = None
        check_filesystem(path)
        try:
            self._locks.append(_locked(Path(f"{path}.lock")))
            self._identity = _identity(path)
            if self._identity is not None:
                file = _users_folder() / "{:x}-{:x}.lock".format(*self._identity)
                self._locks.append(_locked(file))
                self._named_by_identity = file
        except BaseException:
            self.release()
            raise

    def hold(self, file: Path) -> None:
        """Hold another lock file as long as this lock, if it does not yet. Raises: LockHeldError, OSError."""
        with suppress(FileNotFoundError):
            found = file.stat()
            if any(os.path.samestat(os.fstat(held), found) for held in self._locks):
                return
        self._locks.append(_locked(file))

    def begin_epoch(self, writes: Engine) -> None:
        """Inform processes that the lock does not reach that this one writes the book. Raises: DatabaseError."""
        self._epoch = WriterEpoch(writes)

    def check(self) -> None:
        """Check that the path still leads to the locked file, and that no other process has begun to write it.

        Raises:
            FileChangedError: otherwise.
            sqlite3.DatabaseError: if the file cannot be read.
        """
        try:
            found = self._path.stat()
        except FileNotFoundError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._identity:
            raise FileChangedError(f"{self._path} is not the file that was opened: it was moved or replaced meanwhile")
        if self._epoch is not None and not self._epoch.is_current():
            raise FileChangedError(
                f"another process has opened {self._path} for writing, on another host or in another container: "
                "one of the two must end, and what each recorded be compared"
            )

    def release(self) -> None:
        """Let the next process have it."""
        try:
            if self._epoch is not None:
                self._epoch.close()
        finally:
            self._release_locks()

    def _release_locks(self) -> None:
        if self._named_by_identity is not None:
            self._named_by_identity.unlink(missing_ok=True)
            self._named_by_identity = None
        while self._locks:
            os.close(self._locks.pop())


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock beside a book now; looks, and makes no file."""
    try:
        lock = os.open(f"{followed(path)}.lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(lock)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
        if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
            remove_second_names(path)
            found = path.stat()
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise FileChangedError(f"{path} is a folder: name the file of the book in it")
    if found.st_nlink > 1:
        beside = ", ".join(name.name for name in other_names(path))
        where = f"in its folder: {beside}" if beside else f"'find / -samefile {shlex.quote(str(path))}' finds them"
        raise FileChangedError(
            f"{path} has {found.st_nlink} hard links: remove the others; 'epsilon db backup' makes copies ({where})"
        )
    return found.st_dev, found.st_ino


def _locked(file: Path) -> int:
    while True:
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The process that held it before may have removed the file after we opened it: a lock on no file excludes
            # no one.
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), file.stat()):
                    return lock
        except BlockingIOError:
            os.close(lock)
            raise LockHeldError from None
        os.close(lock)


def _users_folder() -> Path:
    """The folder of this user's locks, made if it is not there.

    It lies where no other user can have made it first: in the user's runtime folder, or without one in the state
    folder. In the shared temporary folder anyone could keep this user from opening a book.

    Raises:
        OSError: if it cannot be made, or is someone else's.
    """
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", ""))
    try:
        if runtime.is_absolute() and runtime.is_dir():
            folder = runtime / f"epsilon-ledger-{os.getuid()}"
        else:
            # Hosts may share it, and device and inode are numbers of one host.
            folder = state_folder() / "locks" / re.sub(r"\W", "-", os.uname().nodename)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise PermissionError(
            f"the folder of this user's locks cannot be made ({error.strerror or error}): set XDG_RUNTIME_DIR or "
            "XDG_STATE_HOME to a folder that this user may write"
        ) from None
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(f"{folder} must be a folder that this user alone may enter")
    return folder
