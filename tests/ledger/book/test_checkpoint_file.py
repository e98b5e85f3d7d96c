"""A checkpoint kept outside the book: an older copy of the book is not opened, nor another history."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.book.book import BookUnusable
from ledger.book.checkpoint_file import CheckpointFile
from ledger.log.checkpoint import sign
from ledger.verifier import Checkpoint
from tests.factories.documents import SMALL
from tests.factories.people import LOG, LOG_KEY, ORIGIN
from tests.factories.stored import World, copy, open_world
from tests.ledger.audit.forge import entries_of, forged


@pytest.fixture
def engine() -> str:
    """A copy of a file is the simplest backup."""
    return "sqlite"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Where the checkpoint is kept."""
    return tmp_path / "checkpoint"


def _grow(world: World, kept: Path, *names: str) -> str:
    """Open the book with a kept checkpoint, charge, close; what is kept then."""
    world.book.close()
    world.book = world.open(kept=kept)
    for name in names:
        assert world.submit(world.charge(name, run=SMALL))[0].code.word == "pending"
    world.book.close()
    return kept.read_text(encoding="utf-8")


def test_the_newest_checkpoint_is_kept(world: World, kept: Path) -> None:
    """From the first opening on, and again when the book is closed."""
    assert Checkpoint.open(_grow(world, kept), LOG).size == 10
    note = _grow(world, kept, "a", "b")
    world.book = world.open(kept=kept)
    with world.book.read() as facts:
        assert (note, facts.size) == (facts.checkpoint, 12)


def test_a_restored_backup_is_refused(world: World, kept: Path, tmp_path: Path) -> None:
    """It would give back what was charged since; the book itself is opened as before."""
    world.book.close()
    backup = copy(world.path, tmp_path / "backup.sqlite")
    world.book = world.open()
    _grow(world, kept, "a", "b")
    newest = copy(world.path, tmp_path / "newest.sqlite")
    copy(backup, world.path)
    told = r"has 10 entries, fewer than the 12 under the checkpoint kept at .*: it is an older copy"
    with pytest.raises(BookUnusable, match=told):
        world.open(kept=kept)
    copy(newest, world.path)
    world.book = world.open(kept=kept)
    assert world.submit(world.charge("a", run=SMALL))[0].repeated


def test_another_history_is_refused(world: World, kept: Path, tmp_path: Path) -> None:
    """A book whose operator left out an entry and went on, with everything else in order and as many entries."""
    _grow(world, kept, "a", "b")
    entries = entries_of(world.path)
    fork = forged(world.path, tmp_path / "fork.sqlite", [*entries[:10], entries[11]], LOG_KEY)
    copy(fork, world.path)
    world.book = world.open()
    world.submit(world.charge("c", run=SMALL))
    world.book.close()
    with pytest.raises(BookUnusable, match="the first 12 entries of the book are not those"):
        world.open(kept=kept)


@pytest.mark.parametrize(
    "text", ["", "nothing", "\udc80", sign(Checkpoint("other.example/log", 1, bytes(32)), LOG_KEY)]
)
def test_what_is_no_checkpoint_of_this_log_is_named(world: World, kept: Path, text: str) -> None:
    """An empty file is not taken for a new one."""
    kept.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(BookUnusable, match=r"the checkpoint kept at .* cannot be read"):
        _grow(world, kept)


def test_an_empty_book_is_older_than_any(tmp_path: Path, kept: Path) -> None:
    """Nothing is the oldest copy of all."""
    kept.write_text(sign(Checkpoint(ORIGIN, 1, bytes(32)), LOG_KEY), encoding="utf-8")
    with open_world(tmp_path, founded=False) as world:
        world.book.close()
        with pytest.raises(BookUnusable, match="has 0 entries, fewer than the 1"):
            world.open(kept=kept)


def test_a_checkpoint_is_written_at_most_once_a_second(world: World, kept: Path) -> None:
    """A book that commits all the time does not wait for a second disk all the time."""
    keeper = CheckpointFile(kept, LOG)
    assert keeper.due_s() > 3_600
    with world.book.read() as facts:
        keeper.check(facts, facts.root)
    assert keeper.due_s() == 0
    keeper.write()
    first = kept.read_text(encoding="utf-8")
    assert keeper.due_s() > 3_600
    world.submit(world.charge("a", run=SMALL))
    with world.book.read() as facts:
        keeper.note = facts.checkpoint
    assert 0 < keeper.due_s() <= 1
    assert kept.read_text(encoding="utf-8") == first
    assert [one.name for one in kept.parent.glob("checkpoint*")] == ["checkpoint"]
