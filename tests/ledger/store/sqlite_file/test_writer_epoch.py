"""Two processes that no lock keeps apart: the one that opened the book first notices, and commits nothing more."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from ledger.book.book import BookStopped
from ledger.store.engine import engine_of, url_of
from ledger.store.sqlite_file.writer_epoch import WriterEpoch
from tests.factories.documents import SMALL
from tests.factories.stored import founded_book, open_world

SECOND: Final = """
import sys
from pathlib import Path
from tests.factories.documents import SMALL
from tests.factories.stored import StoredWorld

world = StoredWorld(Path(sys.argv[1]), sys.argv[2])
print(world.submit(world.charge("second", run=SMALL))[0].code.word)
world.book.close()
"""
STOPPED: Final = "another process has opened .* for writing, on another host or in another container"


CONTAINER: Final = ("unshare", "--user", "--map-current-user", "--keep-caps", "--mount")
MOUNTED: Final = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
"""What a container of its own does: the one file under another path, and then a command."""


def _second_process(folder: Path, url: str, runtime: Path, *prefix: str) -> str:
    """What a process prints whose locks lie elsewhere, as those of another host or container do."""
    runtime.mkdir()
    done = subprocess.run(
        [*prefix, sys.executable, "-c", SECOND, str(folder), url],
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)},
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_a_process_that_no_lock_stops_is_noticed(tmp_path: Path) -> None:
    """The first stops before it decides; the second goes on, and has what the first recorded."""
    with open_world(tmp_path) as world:
        world.submit(world.charge("first", run=SMALL))
        Path(f"{world.path}.lock").unlink()
        assert _second_process(tmp_path, world.url, tmp_path / "runtime") == "pending"
        with pytest.raises(BookStopped, match=STOPPED):
            world.submit(world.charge("third", run=SMALL))
        with pytest.raises(BookStopped, match=STOPPED):
            world.book.put_document(b"{}")
        world.book.close()
        world.reopen()
        with world.book.read() as facts:
            assert set(facts.charges) == {"first", "second"}


def test_the_one_file_mounted_into_a_container_is_opened_by_no_one_there(tmp_path: Path) -> None:
    """A real bind mount of the file alone, in a namespace of its own, where no lock of the first process reaches."""
    other = tmp_path / "container" / "book.sqlite"
    other.parent.mkdir()
    other.touch()
    with open_world(tmp_path) as world:
        world.submit(world.charge("first", run=SMALL))
        inside = (*CONTAINER, "sh", "-c", MOUNTED, "sh", str(world.path), str(other))
        with pytest.raises(subprocess.CalledProcessError) as refused:
            _second_process(other.parent, url_of(other), tmp_path / "runtime", *inside)
        assert f"{other} is mounted as a single file" in refused.value.stderr
        assert world.submit(world.charge("third", run=SMALL))[0].code.word == "pending"


def test_a_process_with_another_write_ahead_log_is_noticed(tmp_path: Path) -> None:
    """The same file under two paths, as two mounts of it are: each looks at the file and not at its own log."""
    paths = tmp_path / "book.sqlite", tmp_path / "other.sqlite"
    with founded_book(tmp_path) as url:
        os.link(*paths)
        engines = engine_of(url, writes=True), engine_of(url_of(paths[1]), writes=True)
        with closing(WriterEpoch(engines[0])) as first:
            assert first.is_current()
            with engines[0].begin() as connection:
                connection.exec_driver_sql("INSERT INTO document VALUES ('digest', x'7b7d')")
            assert first.is_current()
            with closing(WriterEpoch(engines[1])) as second:
                assert (first.is_current(), second.is_current()) == (False, True)
        for engine in engines:
            engine.dispose()
