"""Times of entries: replay and the auditor's own file find a step back that not everyone concerned has signed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from ledger.audit.replay import verify_book
from ledger.commands.entry import Entry
from ledger.commands.governance.clock_correction import ClockClaim
from ledger.domain.command import Command
from ledger.verifier import EntryTimes
from ledger.wire import canonical_json as c
from ledger.wire.records import write
from tests.factories.documents import NOW, SMALL
from tests.factories.people import DAY_MS, HOSPITAL, HOUR_MS, LOG, LOG_KEY, SRO
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.ledger.audit.forge import broken, entries_of, forged
from tests.ledger.book.test_clock_correction import MARKET, another_sro, correction, jump

Lie = Callable[[StoredWorld, dict[str, Any]], None]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoredWorld]:
    """A book whose time went back, closed; two SROs have signed."""
    folder = tmp_path_factory.mktemp("corrected")
    with open_world(folder) as world:
        another_sro(world)
        jump(world)
        assert correction(world, SRO, MARKET).code.word == "permitted"
        world.clock.now += HOUR_MS
        world.submit(world.charge("after", run=SMALL))
        world.book.close()
        yield world


def _found_alone(entries: list[Entry]) -> tuple[str, str] | None:
    times = EntryTimes()
    for index, entry in enumerate(entries):
        times.add(index, entry.to_bytes())
    return times.wrong


def _place(entries: list[Entry]) -> int:
    return next(index for index, one in enumerate(entries) if one.kind == "clock_correction")


def _again(world: StoredWorld, entry: Entry, request: dict[str, Any]) -> Entry:
    """The correction with another request, signed anew by its sender, who colludes."""
    command = Command(entry.kind, entry.id, entry.actor, entry.key_id, request)
    return replace(
        entry, body={**entry.body, "request": request}, signature=world.signers[SRO].sign(command.to_bytes())
    )


def test_both_accept_a_correction(here: StoredWorld) -> None:
    """And the times after it."""
    entries = entries_of(here.path)
    assert verify_book(here.url, LOG, no_step).entries == len(entries)
    assert _found_alone(entries) is None
    assert entries[-1].time < entries[-2].time == max(one.time for one in entries)


def _one_less(_world: StoredWorld, request: dict[str, Any]) -> None:
    request["signatures"] = request["signatures"][:1]


def _anothers(world: StoredWorld, request: dict[str, Any]) -> None:
    request["signatures"] = [*request["signatures"][:1], world.signers[HOSPITAL].sign(_claim(request))]


def _earlier(_world: StoredWorld, request: dict[str, Any]) -> None:
    request["time"] -= 1


def _of_another_time(world: StoredWorld, request: dict[str, Any]) -> None:
    request["ahead"] -= 1
    request["signatures"] = [world.signers[did].sign(_claim(request)) for did in (SRO, MARKET)]


def _claim(request: dict[str, Any]) -> bytes:
    return write(ClockClaim(request["ahead"], "back", request["reason"], request["time"]))


LIES: Final[dict[str, tuple[Lie, str, str]]] = {
    "a signature less": (_one_less, "signature_missing follows", f"is not signed by {MARKET}"),
    "another's signature": (_anothers, "signature_missing follows", f"is not signed by {MARKET}"),
    "an earlier time": (_earlier, "signature_invalid follows", "bears a signature that is not"),
    "the time of another entry": (_of_another_time, "conflict follows", "does not go back from the time of its own"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_correction_that_was_not_agreed_is_named(here: StoredWorld, tmp_path: Path, name: str) -> None:
    """By its index, although the log's key and its sender's signed it."""
    lie, said, said_alone = LIES[name]
    entries = entries_of(here.path)
    place = _place(entries)
    request = dict(entries[place].request)
    lie(here, request)
    entries[place] = _again(here, entries[place], request)
    found = broken(forged(here.path, tmp_path / "forged.sqlite", entries, LOG_KEY))
    assert (found.index, said in str(found)) == (place, True), found
    alone = _found_alone(entries)
    assert alone is not None
    assert (alone[0], said_alone in alone[1]) == (f"entry {place}", True), alone


def test_without_a_correction_no_time_goes_back(here: StoredWorld, tmp_path: Path) -> None:
    """Nor does it by one that was refused, or further than it says."""
    entries = entries_of(here.path)
    place = _place(entries)
    early = [*entries[:-1], replace(entries[-1], time=NOW - DAY_MS)]
    for lied in ([*entries[:place], *entries[place + 1 :]], early):
        index = len(lied) - 1
        found = broken(forged(here.path, tmp_path / f"forged-{len(lied)}.sqlite", lied, LOG_KEY))
        assert (found.index, "before the time of the entry before it" in str(found)) == (index, True), found
        assert _found_alone(lied) == (f"entry {index}", "its time lies before the time of the entry before it")


def test_entries_of_another_log_have_no_times() -> None:
    """What is no entry of a book is passed over."""
    times = EntryTimes()
    for index, data in enumerate((b"entry 0", b"\xff", b"[]", b'{"kind":1}', b"[" * 60_000, b'{"time":"x"}')):
        times.add(index, data)
    assert times.wrong is None


def test_an_entry_of_any_depth_is_judged() -> None:
    """What is read may be too deep to be written again; the operator of a log enters what it likes."""
    jwk, wrong = {"crv": "Ed25519", "kty": "OKP", "x": "A" * 43}, set[str]()
    for depth in range(500, 1_010):
        request = f'{{"deep":{"[" * depth}{"]" * depth},"key":{json.dumps(jwk)},"organisation":"{SRO}"}}'
        signed = '"id":"a","key_id":"k","kind":"organisation","signature":"e30..AA","time":1'
        entry = f'{{"actor":"{SRO}","body":{{"outcome":"permitted","request":{request}}},{signed}}}'
        times = EntryTimes([LOG])
        times.add(0, entry.encode())
        wrong.add("" if times.wrong is None else times.wrong[0])
    assert "entry 0" in wrong


def _rsa() -> tuple[dict[str, str], str, Callable[[bytes], bytes]]:
    private = rsa.generate_private_key(65_537, 2_048)
    modulus = private.public_key().public_numbers().n
    key = {"e": "AQAB", "kty": "RSA", "n": c.base64url(modulus.to_bytes(256, "big"))}
    return key, "RS256", lambda message: private.sign(message, padding.PKCS1v15(), hashes.SHA256())


def _p256() -> tuple[dict[str, str], str, Callable[[bytes], bytes]]:
    private = ec.generate_private_key(ec.SECP256R1())
    point = private.public_key().public_numbers()
    key = {"crv": "P-256", "kty": "EC", "x": c.base64url(point.x.to_bytes(32, "big"))}
    key["y"] = c.base64url(point.y.to_bytes(32, "big"))

    def sign(message: bytes) -> bytes:
        r, s = decode_dss_signature(private.sign(message, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")

    return key, "ES256", sign


@pytest.mark.parametrize("make", [_rsa, _p256])
@pytest.mark.parametrize("algorithm", ["", "Ed25519"])
def test_other_keys_of_organisations(
    make: Callable[[], tuple[dict[str, str], str, Callable[[bytes], bytes]]], algorithm: str
) -> None:
    """RSA and P-256 sign with their own algorithm and no other."""
    key, own, sign = make()
    header: c.Object = {"alg": algorithm or own, "b64": False, "crit": ["b64"], "kid": c.base64url(_digest(key))}
    protected, reason = c.base64url(c.dump(header)), "the clock was wrong"
    claim = write(ClockClaim(9, "back", reason, 5))
    signature = f"{protected}..{c.base64url(sign(protected.encode() + b'.' + claim))}"
    request: c.Object = {"ahead": 9, "reason": reason, "signatures": [signature], "time": 5}
    times = EntryTimes()
    log: list[tuple[str, c.Object, int]] = [
        ("organisation", {"key": {**key}, "organisation": SRO}, 9),
        ("clock_correction", request, 9),
        ("void", {"charge": "none"}, 5),
    ]
    for index, (kind, body, time) in enumerate(log):
        recorded: c.Object = {"outcome": "permitted", "request": body}
        times.add(index, c.dump({"actor": SRO, "body": recorded, "id": "back", "kind": kind, "time": time}))
    assert (times.wrong is None) is (algorithm == "")


def _digest(key: dict[str, str]) -> bytes:
    return bytes.fromhex(c.digest(c.dump({**key})))
