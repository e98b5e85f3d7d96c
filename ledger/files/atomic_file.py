"""Atomic files: written under a temporary name in the same folder, synchronised, and only then given their name.

A reader sees the old file or the new one, never a part, however the process ends; when a function here returns, file
and name survive a power loss. A killed process may leave ``.NAME.*.part`` behind, which may be deleted;
:func:`remove_leftovers` deletes those whose lock shows that no process writes them, and :func:`remove_second_names`
those that are a second name of a finished file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ledger.files.named_file import followed

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
    beside = [Path(f"{followed(path)}{suffix}") for suffix in _DATABASE_SUFFIXES if suffix]
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
    with suppress(OSError):
        for part in _parts_beside(path):
            _remove_unlocked(part)


def remove_second_names(path: Path) -> None:
    """Delete the parts of :func:`new_file` that are a second name of the file at ``path`` by now, if possible.

    A process that was killed between the two names of a finished file leaves one. A process that is still there needs
    its part no more once the file has its name, and finds it gone. A part beside which a database has unmerged rows is
    no leftover of ours, and stays.
    """
    with suppress(OSError):
        named = path.resolve(strict=True)
        for part in [one for one in _parts_beside(named) if _is_own(one, named.stat())]:
            if not any(log.lstat().st_size for log in database_leftovers(part) if not log.name.endswith("-shm")):
                part.unlink(missing_ok=True)


def other_names(path: Path) -> list[Path]:
    """The other names of a file in its folder, in order; those in other folders are not known.

    Raises:
        OSError: if there is no file, or its folder cannot be read.
    """
    named = path.resolve(strict=True)
    beside = sorted(file for file in named.parent.iterdir() if file != named)
    return [file for file in beside if _is_same(file, named.stat())]


def _parts_beside(path: Path) -> list[Path]:
    leftover = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{16}}\.part")
    return [file for file in path.parent.iterdir() if leftover.fullmatch(file.name)]


def _is_own(part: Path, file: os.stat_result) -> bool:
    return _is_same(part, file) and stat.S_ISREG(file.st_mode) and file.st_uid == os.geteuid()


def _is_same(name: Path, file: os.stat_result) -> bool:
    """Whether a name is one of a file's, and not a symbolic link to it. Nothing is opened: see the book's lock."""
    with suppress(FileNotFoundError):
        return os.path.samestat(name.lstat(), file)
    return False


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
