"""The rotations of a log as its own entries prove them, for those that kept one of its keys."""

from __future__ import annotations

import json

import pytest

from ledger.domain.command import LEDGER_ACTOR
from ledger.store.log_key.rotation_proofs import all_rotations, first_x, rotation_places, rotations_of, trusted
from ledger.verifier import LogKey, VerificationError, from_base64, verify_receipt, with_rotations
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from tests.factories.log_rotation import NEW, NEW_KEY, THIRD, THIRD_KEY, proofs, proven, restart, rotate, rotated
from tests.factories.people import LOG, ORIGIN, private_key
from tests.factories.stored import StoredWorld


def test_one_kept_key_leads_to_the_others(world: StoredWorld) -> None:
    """Forward and back, over two rotations, by the rotations that the log proves."""
    before, entry = proven(world)
    rotated(world)
    between, _ = proven(world)
    world.book.close()
    rotate(world, log_key=NEW_KEY, new_key=THIRD_KEY)
    restart(world, log_key=THIRD_KEY)
    after, _ = proven(world)
    for kept in (LOG, NEW, THIRD):
        trust = with_rotations(kept, proofs(world))
        assert {verify_receipt(one, entry, trust)[0] for one in (before, between, after)} == {
            verify_receipt(before, entry, LOG)[0]
        }
    with pytest.raises(VerificationError, match="is not signed by the log's key"):
        verify_receipt(after, entry, LOG)
    with pytest.raises(VerificationError, match="of a key of the log that is trusted"):
        with_rotations(LogKey(ORIGIN, private_key("another").public_key().public_bytes_raw()), proofs(world))


def test_a_log_that_kept_its_key_proves_no_rotation(world: StoredWorld) -> None:
    """Its one key is what is trusted; a place where no entry is, is no rotation."""
    with world.book.read() as facts:
        assert rotation_places(facts) == []
        assert json.loads(all_rotations(facts.connection)) == {"rotations": [], "v": 1}
        assert trusted(facts.connection, LOG) == LOG
        with pytest.raises(KeyError):
            rotations_of(facts.connection, [world.size])
        with pytest.raises(Malformed, match="cannot be proven"):
            trusted(facts.connection, LOG, [world.size])


def test_the_state_names_the_entries_that_the_search_finds(world: StoredWorld) -> None:
    """By their places or by a search of the log, the proof is the same, of the book's own entries in order."""
    first = rotated(world).entry
    world.book.close()
    second = rotate(world, log_key=NEW_KEY, new_key=THIRD_KEY).entry
    restart(world, log_key=THIRD_KEY)
    with world.book.read() as facts:
        assert rotation_places(facts) == [first, second]
        shown = rotations_of(facts.connection, rotation_places(facts))
        assert shown == all_rotations(facts.connection)
        entries = [json.loads(from_base64(one["entry"], "entry")) for one in json.loads(shown)["rotations"]]
        assert {one["actor"] for one in entries} == {LEDGER_ACTOR}
        for kept in (LOG, NEW, THIRD):
            assert first_x(trusted(facts.connection, kept), kept) == c.base64url(LOG.public)
        with pytest.raises((Malformed, VerificationError), match="of a key of the log that is trusted"):
            trusted(facts.connection, LogKey(ORIGIN, private_key("another").public_key().public_bytes_raw()))
