"""Atomic files: written under a temporary name in the same folder, synchronised, and only then given their name.

A reader sees the old file or the new one, never a part, however the process ends; when a function here returns, file
and name survive a power loss. A killed process may leave ``.NAME.*.part`` behind, which may be deleted;
:func:`remove_leftovers` deletes those whose lock shows that no process writes them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

PRIVATE: Final = 0o600
"""The mode of a file that only its owner may read."""
SHARED: Final = 0o666
"""The mode of a file that others may read as the umask allows."""
_DATABASE_SUFFIXES: Final = ("", "-wal", "-shm", "-journal")
"""The suffixes of files that SQLite leaves beside a database."""


def replace_file(path: Path, data: bytes | Iterable[bytes], *, mode: int = PRIVATE, durable: bool = True) -> None:
    """Write a file in place of an existing one, if any. Raises: OSError; the old file is then unchanged.

    Args:
        path: the file; its folder exists.
        data: its content, or the pieces of it.
        mode: its permissions, less the umask.
        durable: False where the caller synchronises many files at once.
    """
    with _part_of(path, mode) as part, _write_part(part, data, durable=durable):
        part.replace(path)
    if durable:
        sync_folder(path.parent)


def create_file(path: Path, data: bytes, *, mode: int = PRIVATE) -> None:
    """Write a new file. Raises: FileExistsError, OSError."""
    with new_file(path, mode=mode) as part, _write_part(part, data, durable=False):
        pass


@contextmanager
def new_file(path: Path, *, mode: int = PRIVATE) -> Iterator[Path]:
    """A temporary name to write under; the file gets its own name if the block ends without error, else it is gone.

    Raises:
        FileExistsError: if there is a file of that name, at the start or at the end: it is never replaced.
        OSError: if the folder does not exist or cannot be written.
    """
    exists = FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    if os.path.lexists(path):
        raise exists
    with _part_of(path, mode) as part:
        yield part
        _sync(part, os.O_RDWR)
        try:
            # Unlike a rename, a link never replaces a file that was created meanwhile.
            os.link(part, path)
        except FileExistsError:
            raise exists from None
    sync_folder(path.parent)


def database_leftovers(path: Path) -> list[Path]:
    """Files beside a name that SQLite would read into a database of that name, whichever database left them.

    A write-ahead log bears no mark of the file that it belongs to: the first opening replays it into any.
    """
    # SQLite names them after the file that a symbolic link leads to.
    named = path.resolve() if path.is_symlink() else path
    beside = [Path(f"{named}{suffix}") for suffix in _DATABASE_SUFFIXES if suffix]
    return [file for file in beside if os.path.lexists(file)]


def check_room(path: Path, size: int) -> None:
    """Check that a file of ``size`` bytes can be written: the space is allocated, and freed at once.

    Raises:
        OSError: naming the file, if the disk or a quota has no such room, or the folder cannot be written.
    """
    with _part_of(path, PRIVATE) as part, part.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, size)


def remove_leftovers(path: Path) -> None:
    """Delete the leftovers of killed processes for a file that only :func:`replace_file` writes, if possible."""
    leftover = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{16}}\.part")
    with suppress(OSError):
        for part in [file for file in path.parent.iterdir() if leftover.fullmatch(file.name)]:
            _remove_unlocked(part)


def _remove_unlocked(part: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(part, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()
        finally:
            os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. Raises: OSError."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


@contextmanager
def _part_of(path: Path, mode: int) -> Iterator[Path]:
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
    except OSError as error:
        # The caller knows the file by its own name only.
        raise OSError(error.errno, error.strerror, str(path)) from None
    try:
        yield part
    except OSError as error:
        # A full disk names no file.
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        for suffix in _DATABASE_SUFFIXES:
            Path(f"{part}{suffix}").unlink(missing_ok=True)


@contextmanager
def _write_part(part: Path, data: bytes | Iterable[bytes], *, durable: bool) -> Iterator[None]:
    # The file exists; if it is gone meanwhile, it is not created here with another mode.
    with part.open("r+b") as file:
        # Where files cannot be locked, no file counts as a leftover.
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        file.writelines((data,) if isinstance(data, bytes) else data)
        file.flush()
        if durable:
            os.fsync(file.fileno())
        yield


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
