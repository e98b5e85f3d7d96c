"""Atomic files: old or new, never a part; never over another where that is asked."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.files.atomic_file import SHARED, create_file, new_file, remove_leftovers, replace_file


def mode(path: Path) -> int:
    """The permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> list[str]:
    """What a folder holds, in order."""
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    """Private unless said otherwise, whatever mode the old one had; nothing is left beside it."""
    path = tmp_path / "key"
    path.write_bytes(b"old")
    path.chmod(0o644)
    replace_file(path, b"new")
    assert (path.read_bytes(), mode(path)) == (b"new", 0o600)
    before = os.umask(0o022)
    try:
        replace_file(path, b"shared", mode=SHARED, durable=False)
    finally:
        os.umask(before)
    assert (path.read_bytes(), mode(path), names(tmp_path)) == (b"shared", 0o644, ["key"])


def test_a_file_is_created_once(tmp_path: Path) -> None:
    """A second one of that name is refused, and so is a link that leads nowhere."""
    path, link = tmp_path / "key", tmp_path / "link"
    create_file(path, b"first")
    link.symlink_to(tmp_path / "nowhere")
    for taken in (path, link):
        with pytest.raises(FileExistsError, match="File exists"):
            create_file(taken, b"second")
    assert (path.read_bytes(), mode(path), names(tmp_path)) == (b"first", 0o600, ["key", "link"])


def test_a_file_that_comes_in_between_stays(tmp_path: Path) -> None:
    """The name is taken while the new file is written: what took it is not replaced."""
    path = tmp_path / "book.sqlite"
    with pytest.raises(FileExistsError, match="File exists"), new_file(path) as part:
        _ = part.write_bytes(b"ours"), path.write_bytes(b"theirs")
    assert (path.read_bytes(), names(tmp_path)) == (b"theirs", ["book.sqlite"])


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
def test_nothing_is_left_of_what_failed(tmp_path: Path, suffix: str) -> None:
    """Neither the part nor what a database made beside it."""
    with pytest.raises(IsADirectoryError), new_file(tmp_path / "book.sqlite") as part:
        _ = Path(f"{part}{suffix}").write_bytes(b"begun"), tmp_path.write_bytes(b"")
    assert names(tmp_path) == []


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """Nothing is made on the way."""
    for write in (replace_file, create_file):
        with pytest.raises(FileNotFoundError):
            write(tmp_path / "none" / "key", b"")


def test_leftovers_are_removed_and_nothing_else(tmp_path: Path) -> None:
    """Not what is being written, nor another file's, nor what merely looks like it; a missing folder is no error."""
    path = tmp_path / "state[1]"
    others = [f".{path.name}.part", f".{path.name}.{'0' * 15}g.part", f".state1.{'0' * 16}.part", path.name]
    for name in (f".{path.name}.{'0' * 16}.part", *others):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / f".{path.name}.{'1' * 16}.part").symlink_to(path)

    def pieces() -> Iterator[bytes]:
        yield b"begun"
        remove_leftovers(path)
        yield b", and done"

    replace_file(path, pieces())
    assert path.read_bytes() == b"begun, and done"
    assert names(tmp_path) == sorted([*others, f".{path.name}.{'1' * 16}.part"])
    remove_leftovers(tmp_path / "none" / "file")
