"""The log's key is replaced: what both keys sign, who is led to the new one, and what a stolen old key is good for.

Every test that has a book runs on both engines.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from msgspec import structs

from ledger.audit.replay import verify_book
from ledger.book.book import BookStopped, BookUnusable
from ledger.book.log_key.rotation import Replacement, rotate_log_key
from ledger.book.state import snapshot_file
from ledger.cli import tile_publishing
from ledger.crypto import detached_jws
from ledger.crypto.detached_jws import public_key
from ledger.domain.command import LEDGER_ACTOR
from ledger.domain.key_terms import KeyTerms
from ledger.log.checkpoint import LogSigner, RotatingSigner, receipt, sign
from ledger.state_tree.leaves import StatedRecord
from ledger.state_tree.snapshot_format import read_snapshot, write_snapshot
from ledger.verifier import (
    ROTATIONS,
    Checkpoint,
    EntryTimes,
    Note,
    Policy,
    VerificationError,
    from_base64,
    leaf_hash,
    to_base64,
    verify_receipt,
    verify_tiles,
    with_rotations,
)
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate
from tests.factories.documents import SMALL
from tests.factories.log_rotation import (
    NEW,
    NEW_KEY,
    THIRD,
    THIRD_KEY,
    place_of,
    proofs,
    proven,
    restart,
    rotate,
    rotated,
)
from tests.factories.people import LOG, LOG_KEY, ORIGIN
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.ledger.audit.forge import broken, entries_of, forged, tampered


def test_both_keys_sign_the_one_checkpoint_that_ends_with_the_rotation(world: StoredWorld) -> None:
    """The old key none after it, the new one none before it; and the book verifies by either."""
    done = rotated(world)
    handover = Checkpoint.open(done.note, LOG)
    assert handover == Checkpoint.open(done.note, NEW)
    assert (handover.size, done.key) == (done.entry + 1, NEW)
    with world.book.read() as facts:
        newest = facts.checkpoint
    assert [name for name, _ in Note.parse(newest).lines] == [ORIGIN]
    with pytest.raises(VerificationError, match="is not signed by the log's key"):
        Checkpoint.open(newest, LOG)
    size = world.size
    world.book.close()
    for key in (LOG, NEW):
        assert verify_book(world.url, key, no_step, gate=gate).entries >= size


def test_the_old_key_opens_nothing_and_signs_nothing(world: StoredWorld) -> None:
    """Refused in words on start, also while no entry has followed the rotation; and it replaces no key again."""
    world.book.close()
    with pytest.raises(BookUnusable, match="is not signed by the log's key"):
        world.open(log_key=NEW_KEY)
    done = rotate(world)
    said = f"entry {done.entry} has replaced the log's key .*: start with the file of the key"
    for attempt in (world.open, lambda: rotate(world, new_key=THIRD_KEY)):
        with pytest.raises(BookUnusable, match=said):
            attempt()
    for new in (LOG_KEY, NEW_KEY):
        with pytest.raises(BookUnusable, match="cannot be replaced by this one"):
            rotate(world, log_key=NEW_KEY, new_key=new)
    world.book = world.open(log_key=NEW_KEY)
    assert world.size == done.entry + 1


def test_another_process_with_the_old_key_is_stopped(world: StoredWorld, engine: str) -> None:
    """On PostgreSQL it goes on until its next command, which is not recorded; an SQLite book has one process."""
    if engine == "sqlite":
        with pytest.raises(BookUnusable, match="another process has the book"):
            rotate(world)
        return
    done = rotate(world)
    # Nor does it sign a past that it was asked for before it has noticed.
    with (
        pytest.raises(BookStopped, match=f"entry {done.entry} has replaced the log's key"),
        world.book.read_past(done.entry) as past,
    ):
        assert past.checkpoint
    with pytest.raises(BookStopped, match=f"entry {done.entry} has replaced the log's key"):
        world.submit(world.charge("by the old key", run=SMALL))
    assert world.book.stopped is not None
    restart(world)
    assert not world.recorded("by the old key")
    world.submit(world.charge("by the new key", run=SMALL))


def test_a_state_from_a_snapshot_knows_which_key_is_retired(
    world: StoredWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Opened by the new key, without an entry of before the rotation."""
    monkeypatch.setattr(snapshot_file, "EVERY_CLOSING", 1)
    done = rotated(world)
    where = tmp_path / "snapshot"
    restart(world, snapshot=where)
    world.submit(world.charge("stated", run=SMALL))
    caplog.set_level("INFO")
    restart(world, snapshot=where)
    assert "opened by the snapshot" in caplog.text
    with world.book.read() as facts:
        terms = facts.key_terms[public_key(LOG_KEY).thumbprint]
        assert (terms.owner, terms.revoked) == (LEDGER_ACTOR, done.entry)


def test_a_forged_snapshot_replaces_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It needs no key to forge: the whole log is read, and the book opens by the key that is in force."""
    monkeypatch.setattr(snapshot_file, "EVERY_CLOSING", 1)
    where = tmp_path / "snapshot"
    with open_world(tmp_path) as world:
        for name in ("one", "two"):
            world.book.close()
            world.book = world.open(statements=True, snapshot=where)
            world.submit(world.charge(name, run=SMALL))
        world.book.close()
        found, key_id = read_snapshot(where.read_bytes(), LOG.vkey), public_key(LOG_KEY).thumbprint
        terms = KeyTerms(key_id, LEDGER_ACTOR, 0, None, None, 3, 3)
        tree = found.tree.updated([], [StatedRecord("key_terms", key_id, terms, bytes(32)).leaf])
        where.write_bytes(b"".join(write_snapshot(LOG.vkey, found.size, tree, [found.names])))
        world.book = world.open(statements=True, snapshot=where)
        assert "is not believed, and the whole log is read: entry 3 has replaced the log's key" in caplog.text
        assert world.submit(world.charge("three", run=SMALL))[0].code.word == "pending"


def test_what_is_kept_of_the_log_goes_over_to_the_new_key(world: StoredWorld, tmp_path: Path) -> None:
    """Also where the commit was the last that the rotation did: then the new key finds what the old one signed."""
    old, new = tmp_path / "kept-by-old", tmp_path / "kept-by-new"
    world.book.close()
    world.book = world.open(kept=old, first_start=True)
    world.book.close()
    before = old.read_text(encoding="utf-8")
    done = rotate(world, kept=(old, new))
    assert old.read_text(encoding="utf-8") == new.read_text(encoding="utf-8") == done.note
    new.write_text(before, encoding="utf-8")
    world.book = world.open(log_key=NEW_KEY, kept=new)
    world.book.close()
    assert Checkpoint.open(new.read_text(encoding="utf-8"), NEW).size == done.entry + 1


def _foreign(world: StoredWorld, more: int) -> str:
    """A checkpoint by the new key, of so many more entries than the book has, that the book never had."""
    return sign(Checkpoint(ORIGIN, world.size + more, bytes(32)), NEW_KEY)


@pytest.mark.parametrize("found", [-1, 0, 1, 99, "", "nothing", "\udc80", "other log"])
def test_what_another_book_keeps_for_the_new_key_stays(world: StoredWorld, tmp_path: Path, found: int | str) -> None:
    """The key of a service that lies still is named by mistake: nothing is replaced, neither key nor checkpoint."""
    old, new = tmp_path / "kept-by-old", tmp_path / "kept-by-new"
    world.book.close()
    world.book = world.open(kept=old, first_start=True)
    size, stated = world.size, isinstance(found, int)
    text = _foreign(world, found) if isinstance(found, int) else found
    if found == "other log":
        text = sign(Checkpoint("other.example/log", 1, bytes(32)), NEW_KEY)
    world.book.close()
    before = old.read_text(encoding="utf-8")
    new.write_text(text, encoding="utf-8", errors="surrogateescape")
    why = f"a checkpoint of .* entries that this book of {size} never had" if stated else "something else than a check"
    for _ in range(2):
        with pytest.raises(BookUnusable, match=f"the log's key was not replaced: {new} holds {why}"):
            rotate(world, kept=(old, new))
    assert new.read_text(encoding="utf-8", errors="surrogateescape") == text
    assert old.read_text(encoding="utf-8") == before
    world.book = world.open(kept=old)
    assert world.size == size


def test_what_comes_in_while_the_key_is_replaced_stays(world: StoredWorld, tmp_path: Path) -> None:
    """Between the two writings of the file: it is said that the key is replaced, and the other checkpoint stays."""
    new, text = tmp_path / "kept-by-new", _foreign(world, 5)
    world.book.close()
    world.book = world.open(kept=tmp_path / "kept-by-old", first_start=True)
    size = world.size
    world.book.close()

    def clock() -> int:
        if new.exists():
            new.write_text(text, encoding="utf-8")
        return world.clock()

    with pytest.raises(BookUnusable, match=f"entry {size} has replaced the log's key, but {new} holds a checkpoint"):
        rotate_log_key(place_of(world, clock=clock), Replacement(NEW_KEY), (tmp_path / "kept-by-old", new))
    assert new.read_text(encoding="utf-8") == text
    world.book = world.open(log_key=NEW_KEY)
    assert world.size == size + 1


def test_another_host_is_led_on_from_what_it_kept(world: StoredWorld, tmp_path: Path) -> None:
    """Its file bears the old key's name; once it is led on, a deleted file is missing, and no older one stands in."""
    old, new = (tmp_path / sha256(key.vkey.encode()).hexdigest() for key in (LOG, NEW))
    world.book.close()
    world.book = world.open(kept=old, first_start=True)
    world.submit(world.charge("seen", run=SMALL))
    size = world.size
    world.book.close()
    before = old.read_text(encoding="utf-8")
    done = rotate(world)
    for forged_size, why in ((size, "it has another history"), (done.entry + 5, "cannot be read")):
        old.write_text(sign(Checkpoint(ORIGIN, forged_size, bytes(32)), LOG_KEY), encoding="utf-8")
        with pytest.raises(BookUnusable, match=why):
            world.open(log_key=NEW_KEY, kept=new)
    old.write_text(before, encoding="utf-8")
    with pytest.raises(BookUnusable, match="no checkpoint kept"):
        world.open(log_key=NEW_KEY, kept=tmp_path / "a name of its own")
    world.open(log_key=NEW_KEY, kept=new).close()
    assert (old.exists(), Checkpoint.open(new.read_text(encoding="utf-8"), NEW).size) == (False, done.entry + 1)
    new.unlink()
    with pytest.raises(BookUnusable, match="no checkpoint kept"):
        world.open(log_key=NEW_KEY, kept=new)
    world.book = world.open(log_key=NEW_KEY)


def test_a_stolen_old_key_signs_nothing_that_is_accepted(world: StoredWorld, tmp_path: Path) -> None:
    """No checkpoint after the rotation, no receipt, no published log, no entry of the book's own, no other rotation."""
    done = rotated(world)
    rotations, (_, entry) = proofs(world), proven(world, "after")
    with world.book.read() as facts:
        size, root, index = facts.size, facts.root, facts.entry_index("after") or 0
        path = facts.tree.proof(index)
        tile_publishing.publish(facts, tmp_path / "log", LOG, no_step)
    stolen = sign(Checkpoint(ORIGIN, size, root), LOG_KEY)
    for kept in (LOG, NEW):
        trust = with_rotations(kept, rotations)
        with pytest.raises(VerificationError, match="signed by a key of the log that signs none of this size"):
            verify_receipt(receipt(index, path, stolen), entry, trust)
        with pytest.raises(VerificationError, match="signed by a key of the log that signs none of this size"):
            Checkpoint.open(sign(Checkpoint(ORIGIN, done.entry, root), NEW_KEY), trust)

    def fetch(path: str, _limit: int) -> bytes | None:
        where = tmp_path / "log" / path
        return where.read_bytes() if where.is_file() else None

    for kept in (LOG, NEW):
        assert verify_tiles(fetch, kept).size == size
    (tmp_path / "log" / "checkpoint").write_text(stolen, encoding="utf-8")
    with pytest.raises(VerificationError, match="signs none of this size"):
        verify_tiles(fetch, LOG)
    # Who is not given the rotations finds the entry that names the other key.
    (tmp_path / "log" / ROTATIONS).unlink()
    with pytest.raises(VerificationError, match="are not those that the log's entries record"):
        verify_tiles(fetch, LOG)
    # A second rotation by the thief names another key, and no checkpoint of the second key leads to it.
    false = json.loads(rotations)
    thief = RotatingSigner(LogSigner(LOG_KEY, ORIGIN), THIRD_KEY)
    true = from_base64(false["rotations"][0]["entry"], "entry")
    data = true.replace(c.base64url(NEW.public).encode(), c.base64url(THIRD.public).encode())
    note = thief.sign(1, leaf_hash(data))
    false["rotations"] = [{"entry": to_base64(data), "receipt": receipt(0, [], note)}]
    with pytest.raises(VerificationError, match="are not those of a key of the log that is trusted"):
        with_rotations(NEW, json.dumps(false))
    assert isinstance(with_rotations(LOG, json.dumps(false)), Policy), "who has only the old key cannot tell"
    for shown in (rotations, json.dumps({**false, "rotations": []})):
        trust = with_rotations(LOG, rotations)
        assert with_rotations(trust, shown).sizes == trust.sizes
    with pytest.raises(VerificationError, match="are other ones than those that are known"):
        with_rotations(with_rotations(LOG, rotations), json.dumps(false))
    false["rotations"] += json.loads(rotations)["rotations"]
    with pytest.raises(VerificationError, match="do not follow one another"):
        with_rotations(LOG, json.dumps(false))


def test_a_checkpoint_of_the_old_key_in_the_book_is_found(tmp_path: Path) -> None:
    """It is the newest of the log, over the true entries, and no verification takes it."""
    with open_world(tmp_path) as world:
        rotated(world)
        world.book.close()
        with closing(sqlite3.connect(world.path)) as connection:
            size, note = connection.execute("SELECT max(tree_size), note FROM checkpoint").fetchone()
        stolen = sign(Checkpoint.open(note, NEW), LOG_KEY)
        path = tampered(world.path, tmp_path / "stolen", "UPDATE checkpoint SET note=? WHERE tree_size=?", stolen, size)
        assert f"checkpoint at {size}: checkpoint: of {size} entries is signed by a key" in str(broken(path))


def test_an_entry_of_the_book_that_the_old_key_signed_is_found(tmp_path: Path) -> None:
    """In replay and in the one-file verifier: a statement after the rotation, under a checkpoint of the new key."""
    with open_world(tmp_path) as world:
        done = rotated(world)
        world.book.close()
        *entries, last = entries_of(world.path)
        assert last.kind == "statement"
        command = structs.replace(last.command, key_id=public_key(LOG_KEY).thumbprint)
        stolen = replace(last, key_id=command.key_id, signature=detached_jws.sign(LOG_KEY, command.to_bytes()))
        times = EntryTimes([LOG])
        for index, one in enumerate((*entries, stolen)):
            times.add(index, one.to_bytes())
        assert times.wrong == (
            f"entry {len(entries)}",
            f"statement: is signed by the key {command.key_id}, which is not the log's there",
        )
        path = forged(world.path, tmp_path / "forged", [*entries, stolen], NEW_KEY)
        added = "INSERT INTO checkpoint VALUES (?, ?)"
        path = tampered(path, tmp_path / "whole", added, done.entry + 1, done.note)
        assert f"entry {len(entries)}: the key" in str(broken(path))
