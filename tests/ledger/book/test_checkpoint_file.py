"""A checkpoint kept outside the book: an older copy of the book is not opened, nor another history."""

from __future__ import annotations

import fcntl
import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event

from ledger.book import checkpoint_file
from ledger.book.book import BookUnusable
from ledger.book.checkpoint_file import CheckpointFile, keep_checkpoint
from ledger.log.checkpoint import LogSigner, sign
from ledger.store.engine import engine_of
from ledger.verifier import EMPTY_ROOT, Checkpoint
from tests.factories.documents import SMALL
from tests.factories.people import LOG, LOG_KEY, ORIGIN, private_key
from tests.factories.stored import StoredWorld, copy, open_world
from tests.ledger.audit.forge import entries_of, forged


@pytest.fixture
def engine() -> str:
    """A copy of a file is the simplest backup."""
    return "sqlite"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Where the checkpoint is kept."""
    return tmp_path / "checkpoint"


def _grow(world: StoredWorld, kept: Path, *names: str) -> str:
    """Open the book with a kept checkpoint, charge, close; what is kept then."""
    world.book.close()
    world.book = world.open(kept=kept, first_start=not kept.exists())
    for name in names:
        assert world.submit(world.charge(name, run=SMALL))[0].code.word == "pending"
    world.book.close()
    return kept.read_text(encoding="utf-8")


def test_the_newest_checkpoint_is_kept(world: StoredWorld, kept: Path) -> None:
    """From the first opening on, and again when the book is closed."""
    assert Checkpoint.open(_grow(world, kept), LOG).size == 10
    note = _grow(world, kept, "a", "b")
    world.book = world.open(kept=kept)
    with world.book.read() as facts:
        assert (note, facts.size) == (facts.checkpoint, 12)


def test_a_restored_backup_is_refused(world: StoredWorld, kept: Path, tmp_path: Path) -> None:
    """It would give back what was charged since; the book itself is opened as before."""
    world.book.close()
    backup = copy(world.path, tmp_path / "backup.sqlite")
    world.book = world.open()
    _grow(world, kept, "a", "b")
    newest = copy(world.path, tmp_path / "newest.sqlite")
    copy(backup, world.path)
    reported = r"has 10 entries, fewer than the 12 under the checkpoint kept at .*: it is an older copy"
    with pytest.raises(BookUnusable, match=reported):
        world.open(kept=kept)
    copy(newest, world.path)
    world.book = world.open(kept=kept)
    assert world.submit(world.charge("a", run=SMALL))[0].repeated


def test_a_symbolic_link_keeps_the_checkpoint_at_its_end(world: StoredWorld, kept: Path, tmp_path: Path) -> None:
    """Restored with the book, it leads to the newest checkpoint all the same; and a copy of the book is kept out."""
    (tmp_path / "safe").mkdir()
    kept.symlink_to(tmp_path / "safe" / "checkpoint")
    _grow(world, kept)
    backup = copy(world.path, tmp_path / "backup.sqlite")
    shutil.copyfile(kept, tmp_path / "backup", follow_symlinks=False)
    _grow(world, kept, "a", "b")
    copy(backup, world.path)
    (tmp_path / "backup").replace(kept)
    with pytest.raises(BookUnusable, match="has 10 entries, fewer than the 12 under the checkpoint kept at"):
        world.open(kept=kept)
    (tmp_path / "other").symlink_to(tmp_path / "safe" / "checkpoint")
    kept.resolve().unlink()
    world.book = world.open(kept=kept, first_start=True)
    other = StoredWorld(tmp_path, f"sqlite:///{backup}")
    other.book.close()
    with pytest.raises(BookUnusable, match="another process has a book open whose newest checkpoint is kept at"):
        other.open(kept=tmp_path / "other")
    assert kept.is_symlink()


def test_a_file_with_a_second_hard_link_is_refused(world: StoredWorld, kept: Path, tmp_path: Path) -> None:
    """Once it is replaced, the other name holds an old checkpoint; of a rotation's second file too."""
    note = _grow(world, kept)
    (tmp_path / "other").hardlink_to(kept)
    with pytest.raises(BookUnusable, match="has a second hard link, which would keep an old one: remove the oth"):
        world.open(kept=kept)
    reads = engine_of(world.url, writes=False)
    with pytest.raises(BookUnusable, match=r"has a second hard link"):
        keep_checkpoint(tmp_path / "other", note, ORIGIN, reads)
    reads.dispose()
    (tmp_path / "other").unlink()
    world.book = world.open(kept=kept)
    assert world.size == 10


def test_a_missing_file_stops_the_start(world: StoredWorld, kept: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Restoring the book and deleting the file is no way around it; an operator's word is, once, and is logged."""
    _grow(world, kept, "a")
    kept.unlink()
    reported = r"there is no checkpoint kept at .*/checkpoint, so whether this book of 11 entries is the newest copy"
    for _ in range(2):
        with pytest.raises(BookUnusable, match=reported):
            world.open(kept=kept)
    assert not kept.exists()
    caplog.clear()
    world.book = world.open(kept=kept, first_start=True)
    (record,) = [one for one in caplog.records if one.name == "ledger.rollback"]
    reported = f"first start: this book of 11 entries is taken for the newest copy; no checkpoint was kept at {kept}"
    assert (record.levelname, record.message) == ("WARNING", reported)
    assert Checkpoint.open(kept.read_text(), LOG).size == 11
    world.reopen()
    world.book.close()
    world.book = world.open(kept=kept)


def test_the_word_for_a_first_start_opens_no_older_copy(world: StoredWorld, kept: Path, tmp_path: Path) -> None:
    """It stands for a missing file alone."""
    world.book.close()
    backup = copy(world.path, tmp_path / "backup.sqlite")
    _grow(world, kept, "a")
    copy(backup, world.path)
    with pytest.raises(BookUnusable, match="fewer than the 11"):
        world.open(kept=kept, first_start=True)


def test_an_empty_book_is_kept_before_its_first_entry(tmp_path: Path, kept: Path) -> None:
    """So that a process killed after the first commit leaves no book without a kept checkpoint."""
    with open_world(tmp_path, founded=False) as world:
        world.book.close()
        world.book = world.open(kept=kept)
        assert Checkpoint.open(kept.read_text(), LOG) == Checkpoint(ORIGIN, 0, EMPTY_ROOT)


def test_a_folder_that_cannot_be_written_stops_the_start(world: StoredWorld, tmp_path: Path) -> None:
    """Before anything is charged that it would not have kept."""
    world.book.close()
    (tmp_path / "file").touch()
    for kept in (tmp_path / "file" / "checkpoint", Path("/proc/none/checkpoint")):
        with pytest.raises(BookUnusable, match=rf"the newest checkpoint cannot be kept at {kept}"):
            world.open(kept=kept, first_start=True)


@pytest.fixture
def keeper(world: StoredWorld, kept: Path) -> Iterator[CheckpointFile]:
    """The file as one of several processes that share it has it."""
    reads = engine_of(world.url, writes=False)
    yield CheckpointFile(kept, LogSigner(LOG_KEY, ORIGIN), reads, None, first_start=True)
    reads.dispose()


def test_a_newer_checkpoint_of_another_process_stays(world: StoredWorld, kept: Path, keeper: CheckpointFile) -> None:
    """Two processes that write one PostgreSQL book may share the file, and the slower one does not set it back."""
    with world.book.read() as facts:
        keeper.check(facts, facts.root)
    newest = _grow(world, kept, "a")
    keeper.write()
    assert kept.read_text(encoding="utf-8") == newest


def test_a_newer_checkpoint_under_the_next_key_stays(world: StoredWorld, kept: Path, keeper: CheckpointFile) -> None:
    """A process with the log's old key, which knows no other, does not set the file back either."""
    with world.book.read() as facts:
        keeper.check(facts, facts.root)
    world.submit(world.charge("a", run=SMALL))
    with world.book.read() as facts:
        newest = sign(Checkpoint(ORIGIN, facts.size, facts.root), private_key("the log's second key"))
    kept.write_text(newest, encoding="utf-8")
    keeper.write()
    assert kept.read_text(encoding="utf-8") == newest


@pytest.mark.parametrize(("more", "root"), [(0, 1), (-1, 1), (1, 0), (99, 1)])
def test_a_checkpoint_that_the_book_never_had_stays(  # noqa: PLR0913, PLR0917 - what is compared, and who reports it
    world: StoredWorld, kept: Path, keeper: CheckpointFile, caplog: pytest.LogCaptureFixture, more: int, root: int
) -> None:
    """Of as many entries with another root, of fewer or of more: the process that finds it stops, and says so."""
    with world.book.read() as facts:
        keeper.check(facts, facts.root)
        size = facts.size + more
        other = sign(Checkpoint(ORIGIN, size, facts.root if root == 0 else bytes(32)), LOG_KEY)
    kept.write_text(other, encoding="utf-8")
    reported = f"the checkpoint of {size} entries kept at {kept} is not of this book of 10: a copy of it was opened"
    for _ in range(2):
        with pytest.raises(BookUnusable, match=reported):
            keeper.write()
    assert kept.read_text(encoding="utf-8") == other
    assert reported in caplog.text


def test_an_older_checkpoint_of_the_same_book_is_replaced(
    world: StoredWorld, kept: Path, keeper: CheckpointFile
) -> None:
    """Whoever put it back; so is what is no checkpoint, and a file that was deleted."""
    with world.book.read() as facts:
        keeper.check(facts, facts.root)
        older = sign(Checkpoint(ORIGIN, 4, facts.root_at(4)), LOG_KEY)
    for number, text in enumerate((older, "nothing", "\udc80", f"{ORIGIN}\n-1\n", None)):
        if text is None:
            kept.unlink()
        else:
            kept.write_text(text, encoding="utf-8", errors="surrogateescape")
        world.submit(world.charge(f"run-{number}", run=SMALL))
        with world.book.read() as facts:
            keeper.note = facts.checkpoint
        keeper.write()
        assert kept.read_text(encoding="utf-8") == keeper.note


def test_a_checkpoint_that_an_operator_keeps_sets_none_back(world: StoredWorld, kept: Path) -> None:
    """An older one gives way to it, a newer one of the same book stays; the file is locked while they are compared."""
    reads = engine_of(world.url, writes=False)
    with world.book.read() as facts:
        notes = [sign(Checkpoint(ORIGIN, size, facts.root_at(size)), LOG_KEY) for size in (0, 4, 9)]
    refused = []

    def compares(*args: object) -> None:
        del args
        with kept.with_name(f".{kept.name}.lock").open("r+b") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                refused.append(True)

    event.listen(reads, "before_cursor_execute", compares)
    for kept_before, note, then in ((None, 0, 0), (0, 1, 1), (1, 1, 1), (2, 1, 2), (2, 0, 2)):
        if kept_before is None:
            kept.unlink(missing_ok=True)
        else:
            kept.write_text(notes[kept_before], encoding="utf-8")
        refused.clear()
        keep_checkpoint(kept, notes[note], ORIGIN, reads)
        assert kept.read_text(encoding="utf-8") == notes[then]
        assert bool(refused) == (kept_before is not None)
    reads.dispose()


@pytest.mark.parametrize("loss", ["none", "deleted", "cut", "one bit"])
def test_a_lost_write_ahead_log_is_a_rollback(world: StoredWorld, kept: Path, loss: str) -> None:
    """SQLite opens such a book without a word, and every entry that lay in the file is gone."""
    world.book.close()
    world.book = world.open(kept=kept, first_start=True)
    log = Path(f"{world.path}-wal")
    for name in ("a", "b"):
        world.submit(world.charge(name, run=SMALL))
    main, frames = world.path.read_bytes(), log.read_bytes()
    world.book.close()
    world.path.write_bytes(main)
    changed = {
        "none": frames,
        "deleted": b"",
        "cut": frames[:-4096],
        "one bit": frames[: len(frames) // 2] + bytes([frames[len(frames) // 2] ^ 1]) + frames[len(frames) // 2 + 1 :],
    }
    log.write_bytes(changed[loss])
    if loss == "none":
        world.book = world.open(kept=kept)
        assert world.size == 12
        return
    with pytest.raises(BookUnusable, match=r"the book has 1[01] entries, fewer than the 12 under the checkpoint kept"):
        world.open(kept=kept)


def test_another_history_is_refused(world: StoredWorld, kept: Path, tmp_path: Path) -> None:
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


def test_entries_that_were_cut_off_are_missed(world: StoredWorld, kept: Path, tmp_path: Path) -> None:
    """The newest rows deleted, checkpoints included, and everything else in order: no key is needed for that."""
    _grow(world, kept, "a", "b", "c")
    copy(forged(world.path, tmp_path / "cut.sqlite", entries_of(world.path)[:11], LOG_KEY), world.path)
    with pytest.raises(BookUnusable, match="has 11 entries, fewer than the 13"):
        world.open(kept=kept)


@pytest.mark.parametrize(
    "text", ["", "nothing", "\udc80", sign(Checkpoint("other.example/log", 1, bytes(32)), LOG_KEY)]
)
def test_what_is_no_checkpoint_of_this_log_is_named(world: StoredWorld, kept: Path, text: str) -> None:
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


def test_a_checkpoint_is_written_at_most_once_in_a_while(
    world: StoredWorld, kept: Path, keeper: CheckpointFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A book that commits all the time does not wait for a second disk all the time."""
    # However long this machine takes for a charge.
    monkeypatch.setattr(checkpoint_file, "KEEP_S", 3_600.0)
    assert keeper.due_s() == math.inf
    with world.book.read() as facts:
        keeper.check(facts, facts.root)
    assert keeper.due_s() == 0
    keeper.write()
    first = kept.read_text(encoding="utf-8")
    assert keeper.due_s() == math.inf
    world.submit(world.charge("a", run=SMALL))
    with world.book.read() as facts:
        keeper.note = facts.checkpoint
    assert 0 < keeper.due_s() <= 3_600
    assert kept.read_text(encoding="utf-8") == first
    assert [one.name for one in kept.parent.glob("checkpoint*")] == ["checkpoint"]
