"""The log's key is suspended: nothing is signed or recorded until it is resumed or replaced, whatever is restarted.

Every test that has a book runs on both engines.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from ledger.audit.replay import VerificationFailed, verify_book
from ledger.book.book import BookPaused, BookUnusable
from ledger.book.log_key.suspension import suspend_log_key
from ledger.cli import tile_publishing
from ledger.crypto import detached_jws
from ledger.verifier import Checkpoint, EntryTimes, main
from policy.decisions.gate import gate
from tests.factories.documents import SMALL
from tests.factories.log_rotation import NEW, NEW_KEY, place_of, rotate
from tests.factories.people import LOG, LOG_KEY
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.ledger.audit.forge import entries_of, forged


def suspend(world: StoredWorld, *, resume: bool = False) -> int:
    """Suspend or resume the key of a world's log, and open the book again; the entry."""
    world.book.close()
    try:
        return suspend_log_key(place_of(world), "a laptop is missing", resume=resume).entry
    finally:
        world.book = world.open(statements=True)


def test_nothing_is_recorded_until_it_is_resumed(world: StoredWorld) -> None:
    """No command, no lapse, no statement, also after a restart; reads go on, and what is overdue lapses afterwards."""
    world.submit(world.charge("overdue", run=SMALL))
    entry = suspend(world)
    with world.book.read() as facts:
        note = facts.checkpoint
    world.clock.now += 3_650 * 86_400_000
    for _ in range(2):
        with pytest.raises(BookPaused, match=f"entry {entry} has suspended the log's key"):
            world.submit(world.charge("refused", run=SMALL))
        assert world.book.paused is not None
        with world.book.read() as facts:
            assert (facts.size, facts.checkpoint) == (entry + 1, note)
            assert facts.charges["overdue"].state.name == "PENDING"
        with pytest.raises(BookPaused), world.book.read_past(entry) as past:
            assert past.checkpoint
        world.book.close()
        assert verify_book(world.url, LOG, no_step, gate=gate).entries == entry + 1
        world.book = world.open(statements=True)
    assert suspend(world, resume=True) == entry + 1
    assert world.book.paused is None
    world.submit(world.merger())
    with world.book.read() as facts:
        assert facts.charges["overdue"].state.name != "PENDING"


def test_a_suspended_key_is_replaced(world: StoredWorld) -> None:
    """The rotation ends the suspension; the new key signs, and the book verifies from the old one."""
    entry = suspend(world)
    with pytest.raises(BookUnusable, match="is suspended already"):
        suspend(world)
    world.book.close()
    done = rotate(world)
    assert done.entry == entry + 1
    world.book = world.open(log_key=NEW_KEY)
    assert world.book.paused is None
    world.submit(world.merger())
    size = world.size
    world.book.close()
    assert verify_book(world.url, LOG, no_step, gate=gate).entries == size
    world.book = world.open(log_key=NEW_KEY)
    with world.book.read() as facts:
        assert Checkpoint.open(facts.checkpoint, NEW).size == size


def test_only_a_suspended_key_is_resumed(world: StoredWorld) -> None:
    """What is refused is no entry."""
    size = world.size
    with pytest.raises(BookUnusable, match="is not suspended"):
        suspend(world, resume=True)
    assert world.size == size


def test_another_process_stops_recording_and_goes_on(world: StoredWorld, engine: str) -> None:
    """On PostgreSQL others may run: each notices before its next batch; an SQLite book has one process."""
    if engine == "sqlite":
        with pytest.raises(BookUnusable, match="another process has the book"):
            suspend_log_key(place_of(world), "a test")
        return
    entry = suspend_log_key(place_of(world), "a test").entry
    with pytest.raises(BookPaused, match="is suspended"), world.book.read_past(entry) as past:
        assert past.checkpoint
    with pytest.raises(BookPaused, match="has suspended the log's key"):
        world.submit(world.charge("refused", run=SMALL))
    assert world.size == entry + 1
    suspend_log_key(place_of(world), "a test", resume=True)
    world.submit(world.charge("recorded", run=SMALL))
    assert world.recorded("recorded")


@pytest.mark.parametrize("kind", ["charge", "statement"])
def test_an_entry_after_a_suspension_is_found(tmp_path: Path, kind: str) -> None:
    """In replay and in the one-file verifier: an organisation's and the book's own, each with its true signature."""
    with open_world(tmp_path) as world:
        world.is_checked = False
        world.book.close()
        world.book = world.open(statements=True)
        world.submit(world.charge("later", run=SMALL))
        world.book.close()
        later = next(one for one in reversed(entries_of(world.path)) if one.kind == kind)
    with open_world(tmp_path) as world:
        world.is_checked = False
        entry = suspend(world)
        world.book.close()
        stopped = entries_of(world.path)[: entry + 1]
        whole = [*stopped, replace(later, time=stopped[-1].time)]
        path = forged(world.path, tmp_path / "forged", whole, LOG_KEY)
        with pytest.raises(VerificationFailed, match=f"is {kind}, and the log's key is suspended"):
            verify_book(f"sqlite:///{path}", LOG, no_step)
        times = EntryTimes([LOG])
        for index, one in enumerate(whole):
            times.add(index, one.to_bytes())
        assert times.wrong is not None
        assert "follows the suspension of the log's key" in times.wrong[1]


def test_a_published_log_says_that_its_key_is_suspended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The one-file verifier names the entry, and nothing once it is resumed."""
    (tmp_path / "log.vkey").write_text(LOG.vkey, encoding="utf-8")
    with open_world(tmp_path) as world:
        for resume, said in ((False, True), (True, False)):
            entry = suspend(world, resume=resume)
            folder = tmp_path / f"published-{resume}"
            with world.book.read() as facts:
                tile_publishing.publish(facts, folder, LOG, no_step)
            assert main(["tiles", str(folder), "--log", str(tmp_path / "log.vkey")]) == 0
            assert (f"entry {entry} has suspended the log's key" in capsys.readouterr().out) is said


def test_a_suspension_by_another_key_is_none(tmp_path: Path) -> None:
    """A member of no log signs it with a key of its own: refused on replay."""
    with open_world(tmp_path) as world:
        world.is_checked = False
        entry = suspend(world)
        world.book.close()
        *entries, last = entries_of(world.path)[: entry + 1]
        key = detached_jws.public_key(NEW_KEY)
        command = structs.replace(last.command, key_id=key.thumbprint)
        false = replace(last, key_id=key.thumbprint, signature=detached_jws.sign(NEW_KEY, command.to_bytes()))
        path = forged(world.path, tmp_path / "forged", [*entries, false], LOG_KEY)
        with pytest.raises(VerificationFailed, match=f"entry {entry}"):
            verify_book(f"sqlite:///{path}", LOG, no_step)


def test_a_copy_from_before_the_suspension_is_not_opened(tmp_path: Path) -> None:
    """The kept checkpoint is over the suspension as soon as it is an entry: else an older copy would go on without."""
    kept = tmp_path / "elsewhere" / "kept"
    kept.parent.mkdir()
    with open_world(tmp_path) as world:
        world.book.close()
        world.book = world.open(kept=kept, first_start=True)
        world.book.close()
        before = world.path.read_bytes()
        entry = suspend_log_key(place_of(world), "a laptop is missing", kept).entry
        assert kept.read_text(encoding="utf-8").splitlines()[1] == str(entry + 1)
        with sqlite3.connect(world.path) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        world.path.write_bytes(before)
        with pytest.raises(BookUnusable, match=f"fewer than the {entry + 1} under the checkpoint kept"):
            world.open(kept=kept)
