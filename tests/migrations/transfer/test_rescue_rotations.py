"""No rescue goes behind what a later key of the log has signed, also where the book does not prove that key."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ledger.audit.replay import verify_book
from ledger.book.checkpoint_file import default_path
from ledger.log.checkpoint import sign
from ledger.store.cosignatures import store_cosignature
from ledger.store.engine import engine_of
from ledger.verifier import Checkpoint
from tests.factories.documents import SMALL
from tests.factories.log_rotation import NEW, NEW_KEY, THIRD, THIRD_KEY, rotate
from tests.factories.people import LOG, LOG_KEY, ORIGIN
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.ledger.log.memory_log import Cosigner
from tests.migrations.places import Done, Spot, db


@dataclass(frozen=True, slots=True)
class Rotated:
    """A closed book whose log's key was replaced.

    Attributes:
        place: of the book; ``before`` a copy from before the rotation.
        mine: a checkpoint of then, which someone kept.
        entry: that of the rotation.
        size: of the book.
    """

    world: StoredWorld
    place: Spot
    before: Path
    mine: Path
    entry: int
    size: int

    def rescue(self, *options: object, source: Path | None = None) -> Done:
        """Rescue it, knowing the log's first key."""
        target = self.place.folder / "rescued.sqlite"
        target.unlink(missing_ok=True)
        return db("rescue", source or self.place.book, target, *self.place.log, *options)

    def damage_note(self, entry: int) -> None:
        """The checkpoint over a rotation is cut off."""
        cut = f"UPDATE checkpoint SET note = substr(note, 1, 30) WHERE tree_size = {entry + 1}"  # noqa: S608 - a number of ours
        self.place.tamper("checkpoint", cut)

    def damage_entry(self, entry: int) -> None:
        """The rotation has other bytes."""
        changed = f"UPDATE entry SET time = time, data = {{changed}} WHERE position = {entry}"  # noqa: S608 - a number of ours
        self.place.tamper("entry", changed)


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Rotated]:
    """A book with two charges by the log's second key; what is kept under it is in the user's state folder."""
    old, new, mine, before = default_path(LOG), default_path(NEW), tmp_path / "mine", tmp_path / "before.sqlite"
    (tmp_path / "log.vkey").write_text(LOG.vkey)
    with open_world(tmp_path) as world:
        world.is_checked = False
        world.book.close()
        world.open(kept=old, first_start=True).close()
        mine.write_text(old.read_text())
        shutil.copyfile(world.path, before)
        done = rotate(world, kept=(old, new))
        world.book = world.open(log_key=NEW_KEY, kept=new)
        for name in ("run-1", "run-2"):
            world.submit(world.charge(name, run=SMALL))
        size = world.size
        world.book.close()
        place = Spot(str(world.path), world.url, world.url, tmp_path)
        yield Rotated(world, place, before, mine, done.entry, size)


def test_a_key_that_an_entry_names_is_known_by_its_signature(book: Rotated) -> None:
    """The checkpoint over the rotation is damaged: what was kept under the new key forbids the rescue all the same."""
    book.damage_note(book.entry)
    new = default_path(NEW)
    for options in (("--kept", book.mine), ("--without-kept",), ("--kept", new)):
        done = book.rescue(*options)
        assert (done.code, f"{new} is a checkpoint of {book.size}" in done.out) == (7, True), done.out
    new.unlink()
    done = book.rescue("--kept", book.mine)
    told = f"entry {book.entry} of {book.place.book} replaces the log's key, and the book does not prove it"
    assert (done.code, told in done.out, "or give --without-kept, to accept" in done.out) == (7, True, True), done.out
    done = book.rescue("--kept", book.mine, "--without-kept")
    assert (done.code, f"The log's key has signed {book.size} entries" in done.out) == (0, True), done.out
    assert verify_book(f"sqlite:///{book.place.folder / 'rescued.sqlite'}", LOG, no_step).entries == book.entry


def test_a_cosignature_over_what_a_later_key_signed_counts(book: Rotated) -> None:
    """A witness has seen more than the prefix, whatever the operator says."""
    witness, engine = Cosigner("witness.example", 7), engine_of(book.world.url, writes=True)
    note = default_path(NEW).read_text()
    with engine.begin() as connection:
        store_cosignature(connection, book.size, witness.key, witness.line(note))
    engine.dispose()
    default_path(NEW).unlink()
    book.damage_note(book.entry)
    done = book.rescue("--without-kept")
    assert (done.code, f"what a witness cosigned is a checkpoint of {book.size}" in done.out) == (7, True), done.out


def test_a_rotation_that_cannot_be_read_needs_the_operators_word(book: Rotated) -> None:
    """Whose file lies in the state folder is then unknown, and that the log went on is not."""
    book.damage_entry(book.entry)
    done = book.rescue("--kept", book.mine)
    assert (done.code, f"entry {book.entry} of" in done.out, "does not prove it" in done.out) == (7, True, True), (
        done.out
    )
    assert book.rescue("--without-kept").code == 0


def test_a_copy_from_before_the_rotation_is_seen_by_the_logs_name(book: Rotated) -> None:
    """It holds no trace of the later key; a file of more entries of a log of this name is one, any other file none."""
    new = default_path(NEW)
    done = book.rescue("--kept", book.mine, source=book.before)
    told = f"what the service kept at {new} is a checkpoint of {book.size} entries of a log of this name, by a key that"
    assert (done.code, told in done.out, "--without-kept" in done.out) == (7, True, True), done.out
    assert book.rescue("--without-kept", source=book.before).code == 0
    new.write_text(sign(Checkpoint(ORIGIN, book.entry, bytes(32)), THIRD_KEY))
    (new.parent / "another").write_text(sign(Checkpoint("another.example/log", 999, bytes(32)), THIRD_KEY))
    (new.parent / "no text").write_bytes(b"\xff")
    (new.parent / "folder").mkdir()
    assert book.rescue("--kept", book.mine, source=book.before).code == 0


def test_rotations_before_the_damaged_one_are_proven(book: Rotated) -> None:
    """The prefix goes on to the last key that is; one that is not the log's own signs for none."""
    done = rotate(book.world, log_key=NEW_KEY, new_key=THIRD_KEY, kept=(default_path(NEW), default_path(THIRD)))
    book.world.open(log_key=THIRD_KEY, kept=default_path(THIRD)).close()
    book.damage_note(done.entry)
    refused = book.rescue("--without-kept")
    told = f"{default_path(THIRD)} is a checkpoint of {done.entry + 1}"
    assert (refused.code, told in refused.out) == (7, True), refused.out
    default_path(THIRD).unlink()
    rescued = book.rescue("--without-kept", "--json")
    assert (rescued.code, rescued.json["entries"]) == (0, done.entry), rescued.out
    default_path(THIRD).write_text(sign(Checkpoint(ORIGIN, 999, bytes(32)), LOG_KEY))
    assert book.rescue("--without-kept").code == 2


def test_without_a_state_folder_nothing_is_kept_there(book: Rotated, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rescue rests on what the operator names."""
    for name in ("XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(book.place.folder))
    assert book.rescue("--kept", book.mine, source=book.before).code == 0
