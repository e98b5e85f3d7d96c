"""A disk that loses what was not synchronised: a SQLite VFS between the library and the real files.

The real files stand for what the kernel holds. Beside them the disk keeps what would be left after a power cut: per
file the bytes of its last synchronisation and every change since; per directory the names. A cut keeps a random part
of those changes, in sectors of 512 bytes that land or do not, each for itself; names come and go in order, as a
journalling file system has them. The same disk also answers with errors where it is told to.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import apsw

SECTOR: Final = 512
_NUMBERS: Final = count()
Change = tuple[int, bytes | None]
"""Bytes written at an offset, or None for a file cut to that size."""


@dataclass
class Inode:
    """One file: what a power cut leaves for sure, and what was done since."""

    durable: bytearray
    since: list[Change] = field(default_factory=list)

    def sync(self) -> None:
        """All of it is for sure."""
        for change in self.since:
            _apply(self.durable, change)
        self.since.clear()

    def after_cut(self, dice: random.Random) -> bytes:
        """What is found when the power is back."""
        found, most = bytearray(self.durable), dice.choice((0.1, 0.5, 0.9, 1.0))
        for change in self.since:
            for piece in _sectors(change):
                if dice.random() < most:
                    _apply(found, piece)
        return bytes(found)


def _apply(data: bytearray, change: Change) -> None:
    offset, written = change
    if written is None:
        del data[offset:]
        return
    data.extend(bytes(max(0, offset + len(written) - len(data))))
    data[offset : offset + len(written)] = written


def _sectors(change: Change) -> Iterator[Change]:
    """The parts of a write that land each for itself; bytes of a sector that were not written never change."""
    offset, written = change
    if written is None:
        yield change
        return
    end = offset + len(written)
    while offset < end:
        next_ = min(end, (offset // SECTOR + 1) * SECTOR)
        yield offset, written[len(written) - (end - offset) : len(written) - (end - next_)]
        offset = next_


class Failing(apsw.IOError):
    """What SQLite is told of a failed operation."""

    def __init__(self, result: int) -> None:
        """``result`` is SQLite's extended code."""
        super().__init__(f"injected, {result}")
        self.extendedresult = result


class Disk(apsw.VFS):
    """A VFS of its own name. After the ``cut``-th change nothing is kept any more and every change fails.

    Attributes:
        changes: how many writes, truncations, synchronisations and deletions there were.
        fails: from which change on, and how many times, a synchronisation fails (``sync``) or a write finds no
            space (``full``); by kind.
    """

    def __init__(self, cut: int | None = None) -> None:
        self.name = f"disk-{next(_NUMBERS)}"
        self.changes, self.cut = 0, cut
        self.fails: dict[str, tuple[int, int]] = {}
        self.failed = 0
        self.is_cut = False
        self.ended = False
        self._live: dict[str, Inode] = {}
        self._named: dict[str, Inode] = {}
        self._names: list[tuple[str, Inode | None]] = []
        self._lock = threading.RLock()
        super().__init__(self.name, "")

    def xOpen(self, name: Any, flags: list[int]) -> File:  # noqa: ANN401, N802 - as apsw calls it
        """Open a file; one that is new has a name that is not for sure."""
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        with self._lock:
            if path is not None and path not in self._live and not self._over:
                there = Path(path).exists()
                self._live[path] = Inode(bytearray(Path(path).read_bytes() if there else b""))
                if there:
                    self._named[path] = self._live[path]
                else:
                    self._names.append((path, self._live[path]))
        return File(self, path, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: FBT001, N802 - as apsw calls it
        """Delete a file; unless the directory is synchronised it may come back."""
        with self._lock:
            if self._counts("delete"):
                self._live.pop(filename, None)
                self._names.append((filename, None))
                if syncdir:
                    self._sync_names()
            super().xDelete(filename, False)  # noqa: FBT003 - syncdir: nobody waits for the real disk

    def changed(self, path: str | None, change: Change) -> None:
        """A file is written or truncated."""
        with self._lock:
            kind = "truncate" if change[1] is None else "write"
            if self._counts(kind, path, change) and path is not None:
                self._live[path].since.append(change)

    def synced(self, path: str | None) -> None:
        """A file is synchronised, and its name with it."""
        with self._lock:
            if self._counts("sync") and path is not None:
                self._live[path].sync()
                self._sync_names()

    @property
    def _over(self) -> bool:
        return self.is_cut or self.ended

    def _counts(self, kind: str, path: str | None = None, change: Change | None = None) -> bool:
        """Whether a change is to be kept. Raises: apsw.Error, if it is to fail."""
        if self.ended:
            return False
        self.changes += 1
        if self.cut is not None and self.changes >= self.cut and not self.is_cut:
            # What is being written when the power goes may land in part.
            self.is_cut = True
            if path is not None and change is not None:
                self._live[path].since.append(change)
        if self.is_cut:
            raise Failing(apsw.SQLITE_IOERR_FSYNC if kind == "sync" else apsw.SQLITE_IOERR_WRITE)
        first, times = self.fails.get(kind, (0, 0))
        if times and self.changes >= first:
            self.fails[kind] = first, times - 1
            self.failed += 1
            if kind == "sync":
                raise Failing(apsw.SQLITE_IOERR_FSYNC)
            raise apsw.FullError("injected: no space")
        return True

    def _sync_names(self) -> None:
        """Every name so far is for sure."""
        _rename(self._named, self._names)
        self._names.clear()

    def after_cut(self, dice: random.Random, folder: Path) -> None:
        """Write what a power cut leaves into a folder. Before :meth:`end`, as the moment that this is called."""
        with self._lock:
            names = dict(self._named)
            # A journalling file system keeps the order of what happens to names.
            _rename(names, self._names[: dice.randint(0, len(self._names))])
            for path, inode in names.items():
                (folder / Path(path).name).write_bytes(inode.after_cut(dice))

    def end(self) -> None:
        """Let go: what is closed now writes as it likes, into files that nobody looks at."""
        self.ended = True
        self.fails = {}


def _rename(names: dict[str, Inode], changes: list[tuple[str, Inode | None]]) -> None:
    for name, inode in changes:
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode


class File(apsw.VFSFile):
    """One open file; several may be open on one path."""

    def __init__(self, disk: Disk, path: str | None, name: Any, flags: list[int]) -> None:  # noqa: ANN401
        self._disk, self._path = disk, path
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - as apsw calls it
        """Write."""
        self._disk.changed(self._path, (offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - as apsw calls it
        """Cut to a size."""
        self._disk.changed(self._path, (newsize, None))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802 - as apsw calls it
        """Synchronise: nobody waits for the real disk."""
        del flags
        self._disk.synced(self._path)
