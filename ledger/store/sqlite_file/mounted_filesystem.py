"""On which filesystem an SQLite book lies, and whether one may keep a book.

SQLite's write-ahead log needs memory that every process which has the file open shares (https://sqlite.org/wal.html,
section 1), and locks that exclude. A network filesystem gives neither to two hosts: one of them loses what the other
committed. A file that is mounted by itself (``docker run -v book.sqlite:/book.sqlite``) is as bad: the log lies beside
the file, so each mount has a log of its own.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Final, NamedTuple

MOUNTS: Final = Path("/proc/self/mountinfo")
"""What this process sees mounted: proc(5), "/proc/pid/mountinfo". Other systems than Linux have no such file."""
_REFUSED: Final = re.compile(r"nfs4?|cifs|smb(fs|[23])?|9p|afs|coda|ncpfs|fuse(\..+|blk|ctl)?")
_LOCAL: Final = re.compile(
    r"aufs|bcachefs|btrfs|exfat|ext[234]|f2fs|jfs|nilfs2|ntfs3|overlay|ramfs|reiserfs|rootfs|tmpfs|vfat|xfs|zfs"
)
_CURE: Final = "keep it on a local disk, or in PostgreSQL, which several hosts may use"
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")
_LOG: Final = logging.getLogger("ledger.store")


class FilesystemRefusedError(Exception):
    """A book on this filesystem would lose what was committed; the message names the filesystem."""


class Mount(NamedTuple):
    """One mounted filesystem: where, and of which kind."""

    point: Path
    kind: str


def check_filesystem(path: Path, mounts: str | None = None) -> None:
    """Check that a book's file may lie where it does; where that is unknown, a warning is logged.

    Args:
        path: of the file, which may be still to be made.
        mounts: the text of mountinfo; this process's own if None.

    Raises:
        FilesystemRefusedError: on a network filesystem without write-ahead log, and for a file that is a mount itself.
    """
    real = path.resolve()
    mount = _mount_of(real, _read_mounts() if mounts is None else mounts)
    if mount is None:
        return
    if mount.point == real and not real.is_dir():
        raise FilesystemRefusedError(
            f"{path} is mounted as a single file, and SQLite keeps the newest commits in files beside it: "
            "mount its folder instead"
        )
    if _REFUSED.fullmatch(mount.kind):
        raise FilesystemRefusedError(
            f"{path} lies on {mount.kind}, a filesystem on which SQLite's write-ahead log loses commits: {_CURE}"
        )
    if not _LOCAL.fullmatch(mount.kind):
        _LOG.warning(
            "%s lies on %s, of which it is unknown whether SQLite's write-ahead log is safe there: %s",
            path,
            mount.kind,
            _CURE,
        )


def _read_mounts() -> str:
    try:
        return MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def _mount_of(path: Path, mounts: str) -> Mount | None:
    """The mount that a path lies on: the deepest, and of several at one place the newest, which hides the others."""
    found = None
    for line in mounts.splitlines():
        fields, _, kind = line.partition(" - ")
        mount = Mount(Path(_unescaped(fields.split()[4])), kind.split()[0])
        if path.is_relative_to(mount.point) and (found is None or mount.point.is_relative_to(found.point)):
            found = mount
    return found


def _unescaped(text: str) -> str:
    r"""A path with its blanks, which mountinfo writes as ``\040``."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)
