"""A book lies on a filesystem that keeps what was committed, or is not opened there."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import pytest

from ledger.book.book import BookUnusable
from ledger.store.sqlite_file import mounted_filesystem
from ledger.store.sqlite_file.mounted_filesystem import FilesystemRefusedError, check_filesystem
from tests.factories.stored import open_world
from tests.migrations.places import db

ROOT: Final = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard"


def mounts(point: Path | str, kind: str, *more: str) -> str:
    """A mountinfo with the root, one more filesystem, and lines after it."""
    escaped = str(point).replace(" ", r"\040")
    return "\n".join((ROOT, f"61 27 0:50 / {escaped} rw,relatime shared:1 master:2 - {kind} source rw", *more, ""))


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "fuse", "fuseblk", "fuse.sshfs", "fuse.s3fs"]
)
def test_a_network_filesystem_is_refused_by_name(kind: str) -> None:
    """With what to use in its place."""
    with pytest.raises(FilesystemRefusedError, match=rf"book.sqlite lies on {kind}, .*local disk, or in PostgreSQL"):
        check_filesystem(Path("/data/shared books/book.sqlite"), mounts("/data/shared books", kind))


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay"])
def test_a_local_filesystem_is_taken(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Without a word."""
    check_filesystem(Path("/data/book.sqlite"), mounts("/data", kind))
    assert not caplog.records


@pytest.mark.parametrize("kind", ["ceph", "lustre", "virtiofs", "something"])
def test_another_filesystem_is_warned_of(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """By its name, with what to use in its place."""
    with caplog.at_level(logging.WARNING):
        check_filesystem(Path("/data/book.sqlite"), mounts("/data", kind))
    (record,) = caplog.records
    assert f"lies on {kind}" in record.getMessage()
    assert "PostgreSQL" in record.getMessage()


def test_the_deepest_and_newest_mount_counts() -> None:
    """A folder whose name begins like a mount's is not in it; what was mounted over it hides it."""
    nfs = mounts("/data", "nfs4")
    check_filesystem(Path("/database/book.sqlite"), nfs)
    check_filesystem(Path("/data/local/book.sqlite"), mounts("/data", "nfs4", "62 61 0:51 / /data/local rw - xfs x rw"))
    check_filesystem(Path("/data/book.sqlite"), mounts("/data", "nfs4", "62 61 0:51 / /data rw - tmpfs tmpfs rw"))
    with pytest.raises(FilesystemRefusedError, match="nfs4"):
        check_filesystem(Path("/data/book.sqlite"), mounts("/data", "autofs", "62 61 0:51 / /data rw - nfs4 x rw"))


def test_a_file_that_is_a_mount_itself_is_refused(tmp_path: Path) -> None:
    """Whatever lies under it: its write-ahead log would lie beside the mount."""
    book = tmp_path / "book.sqlite"
    book.touch()
    with pytest.raises(FilesystemRefusedError, match=r"is mounted as a single file, .*: mount its folder instead"):
        check_filesystem(book, mounts(book, "ext4"))
    check_filesystem(book, mounts(tmp_path, "ext4"))


def test_this_machine_is_asked_by_every_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service and the operator's commands end with the sentence, and nothing is made."""
    with open_world(tmp_path) as world:
        world.book.close()
        before = {path.name for path in tmp_path.iterdir()}
        (tmp_path.parent / "mountinfo").write_text(mounts(tmp_path, "nfs4"))
        monkeypatch.setattr(mounted_filesystem, "MOUNTS", tmp_path.parent / "mountinfo")
        with pytest.raises(BookUnusable, match="lies on nfs4, a filesystem on which SQLite's write-ahead log loses"):
            world.open()
        done = db("upgrade", str(tmp_path / "new.sqlite"))
        assert (done.code, "lies on nfs4" in done.out) == (5, True)
        assert {path.name for path in tmp_path.iterdir()} == before
