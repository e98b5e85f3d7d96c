"""A fresh folder has its name only once all that is in it is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from ledger.files.atomic_file import create_file
from ledger.files.fresh_folder import SHARED_FOLDER, fresh_folder
from tests.ledger.files.killed_writers import CONTENTS

ROOT: Final = Path(__file__).resolve().parents[3]


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_killed_process_leaves_a_whole_folder_or_none(tmp_path: Path) -> None:
    """At every moment at which a name is given or taken."""
    process = [sys.executable, "-m", "tests.ledger.files.killed_writers", str(tmp_path)]
    subprocess.run(process, check=True, cwd=ROOT)
    left = [*tmp_path.glob(".*.part")]
    made = [path for path in tmp_path.iterdir() if path not in left]
    assert made
    assert [_contents(one) for one in made] == [CONTENTS] * len(made)
    assert len(left) > 8
    assert any(0 < len(_contents(one)) < len(CONTENTS) for one in left)


def test_a_block_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """Whatever ended it."""

    def fail() -> None:
        with fresh_folder(tmp_path / "new", "--into", mode=SHARED_FOLDER) as made:
            create_file(made / "a", b"a")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert [*tmp_path.iterdir()] == []


def test_what_is_there_is_not_replaced(tmp_path: Path) -> None:
    """A folder, a file or a link that leads nowhere; the option is named."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "none")
    for name in ("folder", "file", "link"):
        with (
            pytest.raises(FileExistsError, match="name another --into, nothing is replaced"),
            fresh_folder(tmp_path / name, "--into"),
        ):
            pass
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "file", "link"}
