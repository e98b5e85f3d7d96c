"""A log that replaced its key, as a client that pinned the old one sees it: it follows, and believes no stolen key."""

from __future__ import annotations

from pathlib import Path

import pytest

from client.service.key_grant_check import check, fetch
from client.service.seen_checkpoint import SeenCheckpoint, SeenCheckpointError, known_keys
from ledger.book.log_key.own_entry import BookPlace
from ledger.book.log_key.rotation import Replacement, rotate_log_key
from ledger.book.wall_clock import unix_ms
from ledger.crypto.detached_jws import public_key
from ledger.log.checkpoint import LogSigner, RotatingSigner, receipt
from ledger.store.engine import url_of
from ledger.verifier import Checkpoint, Policy, leaf_hash, to_base64
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate
from tests.client.service.test_rolled_back_service import charge, release
from tests.factories.people import BANK_A, HOSPITAL, LOG, LOG_KEY, ORIGIN, SRO, private_key
from tests.factories.service import founded_world, open_world

NEW_KEY = private_key("the log's second key")
NEW = LogSigner(NEW_KEY, ORIGIN).key


def test_a_client_that_pinned_the_old_key_follows(tmp_path: Path) -> None:
    """Receipts of before and after, a grant of a data key, and what it had seen; its profile names the old key."""
    with founded_world(tmp_path) as world:
        charge(world, "before")
        held = world.service.held_to(LOG)
        kept = held.receipt("before")
        size, contract = world.size, world.contract
    book = url_of(tmp_path / "book.sqlite")
    place = BookPlace(url=book, gate=gate, log_key=LOG_KEY, origin=ORIGIN, clock=unix_ms)
    rotate_log_key(place, Replacement(NEW_KEY))
    with open_world(tmp_path, log_key=NEW_KEY, database=book) as world:
        world.contract = contract
        world.everybody.roles |= {SRO: "SRO", HOSPITAL: "TDP", BANK_A: "TDC"}
        held = world.service.held_to(LOG)
        release(world, "after")
        granted, released = fetch(held, "release-after", LOG)
        assert check(granted, released, LOG, HOSPITAL, world.clock.now).info.charge == "after"
        held.trust_receipt(kept)
        keys_known = known_keys(LOG)
        assert isinstance(keys_known, Policy)
        assert keys_known.sizes == {LOG: (0, size + 1), NEW: (size + 1, None)}
        # Another program of the same user, that pins the new key, reads all of it too.
        check(granted, released, NEW, HOSPITAL, world.clock.now)
        # The holder of the old key goes on by itself, in a history that extends what was seen.
        with world.book.read() as facts:
            stolen = LogSigner(LOG_KEY, ORIGIN).sign(facts.size, facts.root)
        with pytest.raises(SeenCheckpointError, match="signs none of this size"):
            held.trust_receipt(f"{kept.partition(chr(10) * 2)[0]}\n\n{stolen}")


def test_a_client_that_holds_a_head_of_a_revoked_key(tmp_path: Path) -> None:
    """The true head is extended and goes on; the thief's is not; and no receipt by that key counts."""
    with founded_world(tmp_path) as world:
        charge(world, "before")
        held = world.service.held_to(LOG)
        kept = held.receipt("before")
        size, contract = world.size, world.contract
    book = url_of(tmp_path / "book.sqlite")
    place = BookPlace(url=book, gate=gate, log_key=LOG_KEY, origin=ORIGIN, clock=unix_ms)
    rotate_log_key(place, Replacement(NEW_KEY, None, public_key(LOG_KEY).thumbprint, 0))
    with open_world(tmp_path, log_key=NEW_KEY, database=book) as world:
        world.contract = contract
        world.everybody.roles |= {SRO: "SRO", HOSPITAL: "TDP", BANK_A: "TDC"}
        seen = SeenCheckpoint(LOG, "").path
        for head, goes_on in ((LogSigner(LOG_KEY, ORIGIN).sign(size, bytes(32)), False), (seen.read_text(), True)):
            seen.write_text(head)
            held = world.service.held_to(LOG)
            if goes_on:
                charge(world, "after")
                assert held.receipt("after")
                with pytest.raises(SeenCheckpointError, match="signs none of this size"):
                    held.trust_receipt(kept)
            else:
                with pytest.raises(SeenCheckpointError, match="does not prove that its log goes on"):
                    held.receipt("before")


def test_rotations_that_are_not_those_seen_before_are_refused() -> None:
    """The old key's thief names a key of its own; and what is not proven leaves what was known as it was."""
    thief = private_key("a thief's key")

    def rotated(new: LogSigner) -> tuple[str, str]:
        entry = _entry(new)
        note = RotatingSigner(LogSigner(LOG_KEY, ORIGIN), new.private).sign(1, leaf_hash(entry))
        link: c.Object = {"entry": to_base64(entry), "receipt": receipt(0, [], note)}
        return c.dump({"rotations": [link], "v": 1}).decode(), note

    def no_call(old: int, new: int) -> list[bytes]:
        raise AssertionError((old, new))

    true, note = rotated(LogSigner(NEW_KEY, ORIGIN))
    seen = SeenCheckpoint(LOG, "https://ledger.example/")
    with pytest.raises(SeenCheckpointError, match="does not prove it"):
        seen.trust_rotated(note, no_call, true.replace(LOG.origin, "another.example"))
    assert seen.keys == LOG
    assert seen.trust_rotated(note, no_call, true) == Checkpoint.open(note, NEW)
    false, other = rotated(LogSigner(thief, ORIGIN))
    for one in (seen, SeenCheckpoint(LOG, "https://ledger.example/")):
        with pytest.raises(SeenCheckpointError, match="are other ones than those that were seen before"):
            one.trust_rotated(other, no_call, false)
        assert one.trust(note, no_call).size == 1


def _entry(new: LogSigner) -> bytes:
    key: c.Object = {"crv": "Ed25519", "kty": "OKP", "x": c.base64url(new.key.public)}
    request: c.Object = {"key": key, "possession": "a..b", "retires": {**key, "x": c.base64url(LOG.public)}}
    return c.dump({"body": {"outcome": "permitted", "request": request}, "kind": "log_key_rotation"})
