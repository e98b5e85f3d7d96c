"""A book and a copy of it, under one kept checkpoint: one is open, and the other stops or never starts."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ledger.book.book import Book, BookStopped, BookUnusable
from ledger.book.checkpoint_file import KEEP_S, default_path
from ledger.verifier import Checkpoint
from policy.decisions.gate import gate
from tests.factories.documents import SMALL
from tests.factories.log_rotation import NEW, NEW_KEY, place_of, rotate
from tests.factories.people import LOG, LOG_KEY, ORIGIN
from tests.factories.stored import StoredWorld, copy, open_world

_OPENS: Final = """
import sys, time
from pathlib import Path
from tests.factories.stored import StoredWorld
world = StoredWorld.__new__(StoredWorld)
StoredWorld.__init__(world, Path(sys.argv[1]))
world.book.close()
world.book = world.open(kept=Path(sys.argv[2]), first_start=True)
print("open", flush=True)
time.sleep(600)
"""


@pytest.fixture
def engine() -> str:
    """What can be copied by anyone who reads it."""
    return "sqlite"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Where the checkpoint of both is kept."""
    return tmp_path / "state" / "checkpoint"


@pytest.fixture
def twin(world: StoredWorld, kept: Path, tmp_path: Path) -> Iterator[StoredWorld]:
    """A copy of the book, closed as the book is; both know the kept checkpoint."""
    world.book.close()
    world.open(kept=kept, first_start=True).close()
    (tmp_path / "copy").mkdir()
    copy(world.path, tmp_path / "copy" / "book.sqlite")
    found = StoredWorld(tmp_path / "copy")
    found.book.close()
    yield found
    found.book.close()


def test_no_copy_is_opened_beside_its_book(world: StoredWorld, twin: StoredWorld, kept: Path) -> None:
    """Each would spend all that is left; when the book is closed, the copy is older, and refused as such."""
    world.book = world.open(kept=kept)
    reported = rf"another process has a book open whose newest checkpoint is kept at {kept}: one of the two is a copy"
    with pytest.raises(BookUnusable, match=reported):
        twin.open(kept=kept)
    world.submit(world.charge("run-1", run=SMALL))
    world.book.close()
    with pytest.raises(BookUnusable, match="it is an older copy"):
        twin.open(kept=kept)
    world.book = world.open(kept=kept)


def test_what_could_not_be_opened_holds_nothing(world: StoredWorld, twin: StoredWorld, kept: Path) -> None:
    """The book opens after a copy that was refused, in the same process too."""
    world.book = world.open(kept=kept)
    world.submit(world.charge("run-1", run=SMALL))
    world.book.close()
    for _ in range(2):
        with pytest.raises(BookUnusable, match="it is an older copy"):
            twin.open(kept=kept)
    world.book = world.open(kept=kept)
    assert world.submit(world.charge("run-2", run=SMALL))[0].code.word == "pending"


def test_a_killed_process_holds_nothing(world: StoredWorld, twin: StoredWorld, kept: Path) -> None:
    """The kernel releases what it held; while it ran, it had the file."""
    command = [sys.executable, "-c", _OPENS, str(twin.path.parent), str(kept)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            with pytest.raises(BookUnusable, match="another process has a book open whose newest checkpoint"):
                world.open(kept=kept)
        finally:
            process.send_signal(signal.SIGKILL)
    world.book = world.open(kept=kept)
    assert kept.exists()


def test_two_books_that_hold_nothing_in_common_stop(world: StoredWorld, twin: StoredWorld, kept: Path) -> None:
    """Where locks do not reach, each finds what the other kept: the later writer stops, before it sets that back."""
    world.book = world.open(kept=kept)
    # As from another host, or after someone deleted the lock: a lock on no name excludes no one.
    kept.with_name(f".{kept.name}.book.lock").unlink()
    twin.book = twin.open(kept=kept)
    twin.submit(twin.charge("theirs", run=SMALL))
    twin.book.close()
    theirs = kept.read_text(encoding="utf-8")
    world.submit(world.charge("ours", run=SMALL))
    ends = time.monotonic() + 20 * KEEP_S
    while world.book.stopped is None and time.monotonic() < ends:
        Checkpoint.open(kept.read_text(encoding="utf-8"), LOG)
    assert "is not of this book of" in str(world.book.stopped)
    with pytest.raises(BookStopped, match="a copy of it was opened elsewhere, and both spend one budget"):
        world.submit(world.charge("more", run=SMALL))
    world.book.close()
    assert kept.read_text(encoding="utf-8") == theirs
    with pytest.raises(BookUnusable, match="another history"):
        world.open(kept=kept)


def test_a_copy_that_is_closed_sets_nothing_back(world: StoredWorld, twin: StoredWorld, kept: Path) -> None:
    """What it finds at closing stays, so that the next opening of either compares it."""
    world.book = world.open(kept=kept)
    theirs = kept.read_text(encoding="utf-8")
    kept.with_name(f".{kept.name}.book.lock").unlink()
    twin.book = twin.open(kept=kept)
    for name in ("one", "two"):
        twin.submit(twin.charge(name, run=SMALL))
    twin.book.close()
    assert (ours := kept.read_text(encoding="utf-8")) != theirs
    world.submit(world.charge("ours", run=SMALL))
    world.book.close()
    assert kept.read_text(encoding="utf-8") == ours


def test_a_rotation_holds_the_files_of_both_keys(world: StoredWorld, twin: StoredWorld) -> None:
    """No copy is open by the old key's file, nor by the new key's, while the key is replaced or the new one begins."""
    old, new = default_path(LOG), default_path(NEW)
    world.open(kept=old, first_start=True).close()
    opened = twin.open(kept=old)
    with pytest.raises(BookUnusable, match="another process has a book open whose newest checkpoint"):
        rotate(world, kept=(old, new))
    opened.close()
    opened = twin.open(kept=new, first_start=True)
    with pytest.raises(BookUnusable, match="another process has a book open whose newest checkpoint"):
        rotate(world, kept=(old, new))
    opened.close()
    new.unlink()
    rotate(world)
    opened = twin.open(kept=old)
    with pytest.raises(BookUnusable, match=rf"newest checkpoint is kept at {old}"):
        world.open(log_key=NEW_KEY, kept=new)
    opened.close()
    world.open(log_key=NEW_KEY, kept=new).close()
    with place_of(world, log_key=NEW_KEY).opened(new) as own:
        own.hold(new)
        with pytest.raises(BookUnusable, match=rf"newest checkpoint is kept at {new}"):
            twin.open(kept=new)
    world.book = world.open(log_key=NEW_KEY)


def test_processes_of_one_postgresql_book_share_the_file(tmp_path: Path, kept: Path) -> None:
    """Each finds what the other one kept of the same book, and goes on; the file ends at the newest."""
    with open_world(tmp_path, "postgresql") as world:
        world.book.close()
        world.book = world.open(kept=kept, first_start=True)
        other = Book.open(
            world.url, gate=gate, log_key=LOG_KEY, origin=ORIGIN, clock=world.clock, kept=kept, volatile=True
        )
        try:
            other.submit([world.charge("theirs", run=SMALL)])
            world.submit(world.charge("ours", run=SMALL))
            ends = time.monotonic() + KEEP_S * 1.3
            while time.monotonic() < ends:
                assert (world.book.stopped, other.stopped) == (None, None)
            other.submit([world.charge("theirs, later", run=SMALL)])
        finally:
            other.close()
        size = world.size
        world.book.close()
        assert Checkpoint.open(kept.read_text(encoding="utf-8"), LOG).size == size
    assert f".{kept.name}.book.lock" not in [one.name for one in kept.parent.iterdir()]


def test_a_copied_postgresql_book_stops_too(tmp_path: Path, kept: Path, twin: StoredWorld) -> None:
    """No lock excludes it: the history does."""
    twin.book = twin.open(kept=kept)
    twin.submit(twin.charge("theirs", run=SMALL))
    twin.book.close()
    kept.unlink()
    (tmp_path / "server").mkdir()
    with open_world(tmp_path / "server", "postgresql") as world:
        world.book.close()
        world.book = world.open(kept=kept, first_start=True)
        twin.book = twin.open(kept=tmp_path / "elsewhere", first_start=True)
        twin.book.close()
        kept.write_bytes((tmp_path / "elsewhere").read_bytes())
        world.submit(world.charge("ours", run=SMALL))
        ends = time.monotonic() + 20 * KEEP_S
        while world.book.stopped is None and time.monotonic() < ends:
            assert kept.read_bytes() == (tmp_path / "elsewhere").read_bytes()
        assert "is not of this book of" in str(world.book.stopped)
