"""One process writes an SQLite book, whatever names lead to its file."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.audit.replay import verify_book
from ledger.book.book import BookStopped, BookUnusable
from ledger.book.opening_checks import take_lock
from ledger.files.atomic_file import new_file
from ledger.store.sqlite_file.file_lock import FileChangedError, FileLock, LockHeldError, is_locked
from tests.factories.documents import SMALL
from tests.factories.people import LOG
from tests.factories.stored import StoredWorld, no_step, open_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StoredWorld]:
    """An open book in a file."""
    with open_world(tmp_path) as found:
        yield found


def test_a_second_hard_link_is_refused(world: StoredWorld) -> None:
    """By either name, since each name has a write-ahead log of its own; without it the book opens again."""
    world.book.close()
    other = world.path.with_name("other.sqlite")
    os.link(world.path, other)
    for path in (world.path, other):
        with pytest.raises(BookUnusable, match="has 2 hard links: remove the others; 'epsilon db backup' makes copies"):
            StoredWorld(path.parent, f"sqlite:///{path}")
    other.unlink()
    world.reopen()


def test_a_foreign_hard_link_is_named(tmp_path: Path) -> None:
    """Where it lies in the folder; what merely looks like a part of a killed command is told, and stays."""
    book = tmp_path / "book.sqlite"
    book.touch()
    wrong = [".book.sqlite.0123.part", f".other.sqlite.{'0' * 16}.part", f".book.sqlite.{'0' * 15}g.part", "b.sqlite"]
    for name in wrong:
        os.link(book, tmp_path / name)
        with pytest.raises(FileChangedError, match=rf"has 2 hard links: .* \(in its folder: {name}\)"):
            FileLock(book)
        (tmp_path / name).unlink()
    (tmp_path / "elsewhere").mkdir()
    os.link(book, tmp_path / "elsewhere" / "book.sqlite")
    with pytest.raises(FileChangedError, match=rf"\('find / -samefile {book}' finds them\)"):
        FileLock(book)


def test_the_part_of_a_killed_command_is_removed(tmp_path: Path) -> None:
    """By whichever path the book is opened; another file under such a name stays."""
    book, link = tmp_path / "book.sqlite", tmp_path / "link.sqlite"
    part, other = (tmp_path / f".book.sqlite.{digit * 16}.part" for digit in "0a")
    book.write_bytes(b"")
    other.write_bytes(b"another file")
    link.symlink_to(book)
    for path in (book, link):
        os.link(book, part)
        FileLock(path).release()
        assert (part.exists(), book.stat().st_nlink, other.read_bytes()) == (False, 1, b"another file")


def test_a_part_that_may_be_in_use_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With rows of a log of its own beside it, or where the file is another user's: it is told."""
    book, part = tmp_path / "book.sqlite", tmp_path / f".book.sqlite.{'0' * 16}.part"
    book.touch()
    os.link(book, part)
    log = Path(f"{part}-wal")
    log.write_bytes(b"rows")
    with pytest.raises(FileChangedError, match=rf"in its folder: {part.name}"):
        FileLock(book)
    log.write_bytes(b"")
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(FileChangedError, match=rf"in its folder: {part.name}"):
            FileLock(book)
    assert part.exists()
    FileLock(book).release()
    assert not part.exists()


def test_a_file_that_is_opened_between_its_two_names_is_made_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who makes it finds its part gone, and is done."""
    book, link = tmp_path / "book.sqlite", os.link

    def linked(part: Path, path: Path) -> None:
        link(part, path)
        FileLock(path).release()
        assert not part.exists()

    monkeypatch.setattr(os, "link", linked)
    with new_file(book) as part:
        part.write_bytes(b"book")
    assert (book.read_bytes(), book.stat().st_nlink) == (b"book", 1)


def test_a_folder_is_no_book(tmp_path: Path) -> None:
    """Its links are those of the folders in it."""
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    with pytest.raises(BookUnusable, match="folder is a folder: name the file of the book in it"):
        take_lock(f"sqlite:///{tmp_path / 'folder'}")


def test_a_hard_link_made_meanwhile_opens_no_second_writer(world: StoredWorld) -> None:
    """The first goes on and loses nothing."""
    other = world.path.with_name("other.sqlite")
    os.link(world.path, other)
    with pytest.raises(BookUnusable, match="has 2 hard links"):
        StoredWorld(other.parent, f"sqlite:///{other}")
    assert world.submit(world.charge("run-1", run=SMALL))[0].code.word == "pending"
    world.book.close()
    other.unlink()
    assert verify_book(world.url, LOG, no_step).charges == 1


def test_a_second_path_is_refused(world: StoredWorld, tmp_path: Path) -> None:
    """A folder's symbolic link leads to the same file, and to a lock file of the same name."""
    (tmp_path / "link.sqlite").symlink_to(world.path)
    with pytest.raises(BookUnusable, match=r"another process has the book at .*link.sqlite open for writing"):
        StoredWorld(tmp_path, f"sqlite:///{tmp_path / 'link.sqlite'}")


def test_a_symbolic_link_is_refused_in_every_runtime_folder(
    world: StoredWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment of a process chooses where locks by device and inode lie; the one beside the file is left."""
    for folder in ("elsewhere", "runtime"):
        (tmp_path / folder).mkdir(mode=0o700)
    (tmp_path / "elsewhere" / "book.sqlite").symlink_to(world.path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    with pytest.raises(LockHeldError):
        FileLock(tmp_path / "elsewhere" / "book.sqlite")
    assert is_locked(tmp_path / "elsewhere" / "book.sqlite")
    assert world.submit(world.charge("run-1", run=SMALL))[0].code.word == "pending"


def test_a_removed_lock_file_lets_no_one_in(world: StoredWorld) -> None:
    """The lock that is named by device and inode is still held."""
    Path(f"{world.path}.lock").unlink()
    with pytest.raises(BookUnusable, match="another process has the book"):
        world.open()


def test_a_file_that_was_replaced_stops_the_writer(world: StoredWorld) -> None:
    """Nothing more is recorded in a file that the path does not lead to any more; what was recorded is in it."""
    world.submit(world.charge("before", run=SMALL))
    moved, copy = world.path.with_name("moved.sqlite"), world.path.with_name("copy.sqlite")
    shutil.copyfile(world.path, copy)
    world.path.rename(moved)
    copy.rename(world.path)
    with pytest.raises(BookStopped, match="is not the file that was opened: it was moved or replaced meanwhile"):
        world.submit(world.charge("after", run=SMALL))
    world.book.close()


def test_no_lock_file_is_left_in_the_users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there while the lock is held, and whoever may enter the folder is checked."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    book = tmp_path / "book.sqlite"
    book.touch()
    lock = FileLock(book)
    (folder,) = tmp_path.glob("epsilon-ledger-*")
    assert len([*folder.iterdir()]) == 1
    with pytest.raises(LockHeldError):
        FileLock(book)
    lock.release()
    assert not [*folder.iterdir()]
    folder.chmod(0o777)
    with pytest.raises(PermissionError, match="must be a folder that this user alone may enter"):
        FileLock(book)
    folder.chmod(0o700)
    FileLock(book).release()


def test_no_other_user_can_hold_up_a_book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a runtime folder the lock lies in the state folder: what lies in the temporary one is no matter."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "shared"))
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / f"epsilon-ledger-{os.getuid()}").touch()
    book, link = tmp_path / "book.sqlite", tmp_path / "link.sqlite"
    book.touch()
    link.symlink_to(book)
    lock = FileLock(book)
    (folder,) = (tmp_path / "state" / "epsilon-ledger" / "locks").iterdir()
    assert (folder.stat().st_mode & 0o777, len([*folder.iterdir()])) == (0o700, 1)
    with pytest.raises(LockHeldError):
        FileLock(link)
    lock.release()
    assert not [*folder.iterdir()]
    FileLock(link).release()


@pytest.mark.parametrize("variables", [{"XDG_STATE_HOME": "{file}/state"}, {}])
def test_a_user_without_a_folder_is_told_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    """Where the home folder cannot be written, or there is none; a runtime folder is then enough."""
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "file").touch()
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(file=tmp_path / "file"))
    (tmp_path / "book.sqlite").touch()
    reported = (
        "book.sqlite cannot be locked for writing: the folder of this user's locks cannot be made .*: set XDG_RUN"
    )
    with pytest.raises(BookUnusable, match=reported):
        take_lock(f"sqlite:///{tmp_path / 'book.sqlite'}")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    lock = take_lock(f"sqlite:///{tmp_path / 'book.sqlite'}")
    assert lock is not None
    lock.release()
