"""The window of a rotation of the log's key: both keys sign, up to the stated size; and a stolen key is revoked.

Every test that has a book runs on both engines.
"""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger.audit.replay import verify_book
from ledger.book.book import BookUnusable
from ledger.crypto.detached_jws import public_key
from ledger.log.checkpoint import sign
from ledger.verifier import Checkpoint, LogKey, Note, VerificationError, verify_receipt, with_rotations
from policy.decisions.gate import gate
from tests.factories.documents import SMALL
from tests.factories.log_rotation import NEW, NEW_KEY, THIRD_KEY, proofs, proven, rotate
from tests.factories.people import LOG, LOG_KEY, ORIGIN, CleanRoom
from tests.factories.stored import StoredWorld, no_step


def with_window(world: StoredWorld, overlap: int) -> int:
    """A book whose key was replaced with a window, open by both keys; the last size that both sign."""
    world.submit(world.charge("before", run=SMALL))
    world.book.close()
    done = rotate(world, overlap=overlap)
    world.book = world.open(log_key=NEW_KEY, old_key=LOG_KEY)
    return done.entry + 1 + overlap


def newest(world: StoredWorld) -> str:
    """The newest checkpoint."""
    with world.book.read() as facts:
        return facts.checkpoint


def accepts(note: str, key: LogKey) -> bool:
    """Whether who knows one key of the log, and no rotation, accepts a checkpoint."""
    try:
        Checkpoint.open(note, key)
    except VerificationError as error:
        return str(error) != "checkpoint: is not signed by the log's key"
    return True


def test_both_keys_sign_up_to_the_stated_size_and_no_further(world: StoredWorld) -> None:
    """Over restarts too; a receipt of the window verifies for those that know the old key alone, a later one does not.

    Without the old key the new one signs alone, and the book verifies by either key.
    """
    last = with_window(world, 4)
    seen = []
    for place in range(6):
        world.submit(world.charge(f"run-{place}", run=SMALL))
        note = newest(world)
        seen.append((Checkpoint.open(note, NEW).size, accepts(note, LOG)))
        if place == 1:
            text, entry = proven(world, "run-1")
            assert verify_receipt(text, entry, LOG)[1].size == seen[-1][0]
        if place == 2:
            world.book.close()
            world.book = world.open(log_key=NEW_KEY, old_key=LOG_KEY)
    assert seen == [(size, size <= last) for size in range(last - 3, last + 3)]
    with pytest.raises(VerificationError, match="is not signed by the log's key"):
        verify_receipt(*proven(world, "run-1"), LOG)
    size = world.size
    world.book.close()
    for key in (LOG, NEW):
        assert verify_book(world.url, key, no_step, gate=gate).entries == size
    world.book = world.open(log_key=NEW_KEY, old_key=LOG_KEY)
    world.submit(world.charge("after", run=SMALL))
    assert len(Note.parse(newest(world)).lines) == 1


def test_without_the_old_key_the_new_one_signs_alone(world: StoredWorld) -> None:
    """A window obliges no one to hold the old key; a key that none of the log's is, is refused in words."""
    with_window(world, 4)
    world.book.close()
    for wrong in (THIRD_KEY, NEW_KEY):
        with pytest.raises(BookUnusable, match="has not replaced"):
            world.open(log_key=NEW_KEY, old_key=wrong)
    with pytest.raises(BookUnusable, match="has replaced the log's key"):
        world.open(log_key=LOG_KEY)
    world.book = world.open(log_key=NEW_KEY)
    world.submit(world.charge("alone", run=SMALL))
    assert not accepts(newest(world), LOG)


def test_a_checkpoint_by_the_old_key_alone_counts_in_the_window_for_those_that_trust_no_later_key(
    world: StoredWorld,
) -> None:
    """Given the rotation, who pinned the old key accepts it up to the window's end; who pinned the new one, never."""
    last = with_window(world, 2)
    rotations = proofs(world)
    for size, counts in ((last - 1, True), (last, True), (last + 1, False)):
        note = sign(Checkpoint(ORIGIN, size, bytes(32)), LOG_KEY)
        if counts:
            assert Checkpoint.open(note, with_rotations(LOG, rotations)).size == size
        else:
            with pytest.raises(VerificationError, match="signs none of this size"):
                Checkpoint.open(note, with_rotations(LOG, rotations))
        with pytest.raises(VerificationError, match="signs none of this size"):
            Checkpoint.open(note, with_rotations(NEW, rotations))


def test_what_a_stolen_key_signed_since_its_theft_does_not_count(world: StoredWorld) -> None:
    """Neither a history of its own, nor the true one by it alone, which the newest checkpoint covers.

    What it signed before goes on to count, and the book's own replay compares all of it with the entries.
    """
    before, first = proven(world)
    world.clock.now += 60_000
    stolen_since = world.clock.now
    size = world.size
    world.submit(world.charge("since", run=SMALL))
    since, entry = proven(world, "since")
    world.book.close()
    done = rotate(world, stolen=public_key(LOG_KEY).thumbprint, stolen_since=stolen_since)
    world.book = world.open(log_key=NEW_KEY)
    for kept in (LOG, NEW):
        trust = with_rotations(kept, proofs(world))
        assert trust.revoked == {LOG: size}
        assert verify_receipt(before, first, trust)[1].size == size
        false = sign(Checkpoint(ORIGIN, size + 1, bytes(32)), LOG_KEY)
        with pytest.raises(VerificationError, match="signs none of this size"):
            verify_receipt(since, entry, trust)
        with pytest.raises(VerificationError, match="signs none of this size"):
            Checkpoint.open(false, trust)
        assert Checkpoint.open(done.note, trust).size == done.entry + 1
        assert verify_receipt(*proven(world, "since"), trust)[1].size == done.entry + 1
    world.book.close()
    assert verify_book(world.url, LOG, no_step, gate=gate).entries == done.entry + 1
    world.book = world.open(log_key=NEW_KEY)


def test_the_first_key_is_revoked_though_a_charge_has_named_it(world: StoredWorld) -> None:
    """As its clean room's, before an entry said that it is the log's: else whoever charges could keep it in force."""
    room = {**CleanRoom("x").to_json(), "signing": public_key(LOG_KEY).to_json()}
    assert world.submit(world.charge("squat", clean_room=room))[0].code.word == "pending"
    world.book.close()
    rotate(world)
    rotate(world, log_key=NEW_KEY, new_key=THIRD_KEY, stolen=public_key(LOG_KEY).thumbprint)
    world.book = world.open(log_key=THIRD_KEY)
    assert with_rotations(LOG, proofs(world)).revoked == {LOG: 0}
    other = CleanRoom("y")
    world.submit(world.charge("other", clean_room=other.to_json()))
    world.book.close()
    with pytest.raises(BookUnusable, match="the log never had the key"):
        rotate(world, log_key=THIRD_KEY, new_key=Ed25519PrivateKey.generate(), stolen=other.signer.key_id)
    world.book = world.open(log_key=THIRD_KEY)


def test_an_earlier_key_is_revoked_later(world: StoredWorld) -> None:
    """By the next rotation, where its theft is known only then; nothing is revoked that the log never had."""
    last = with_window(world, 1_000)
    world.book.close()
    old = public_key(LOG_KEY).thumbprint
    with pytest.raises(BookUnusable, match="the log never had the key"):
        rotate(world, log_key=NEW_KEY, new_key=THIRD_KEY, stolen=public_key(THIRD_KEY).thumbprint)
    with pytest.raises(BookUnusable, match="does not go on signing"):
        rotate(world, log_key=NEW_KEY, new_key=THIRD_KEY, overlap=5, stolen=public_key(NEW_KEY).thumbprint)
    done = rotate(world, log_key=NEW_KEY, new_key=THIRD_KEY, stolen=old, stolen_since=world.clock.now + 60_000)
    world.book = world.open(log_key=THIRD_KEY)
    trust = with_rotations(LOG, proofs(world))
    assert trust.revoked == {LOG: done.entry}
    with pytest.raises(VerificationError, match="signs none of this size"):
        Checkpoint.open(sign(Checkpoint(ORIGIN, last - 1, bytes(32)), LOG_KEY), trust)
