"""Key release end to end: one nonce, one entry, one clean room that can open what it gets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Final

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from sqlalchemy import text

from api.auth.bad_signatures import PER_SENDER_MAX
from api.http.problems import Problem
from api.keys.data_key_store import KeyStore
from api.keys.key_release import KeyReleases
from api.keys.nonces import Challenges
from client.http.problems import Refused
from client.keys.hpke_envelope import unseal
from client.keys.sealed_model import seal_deposit
from client.service.answers import Answer
from ledger.book.book import Submission
from ledger.commands.governance.clock_correction import ClockClaim
from ledger.commands.registry import PATHS
from ledger.domain.command import Command
from ledger.domain.outcomes import Code
from ledger.wire.canonical_json import Object, base64url
from ledger.wire.malformed import Malformed
from ledger.wire.records import write
from tests.factories.documents import PARTITION
from tests.factories.people import BANK_A, HOSPITAL, SRO, CleanRoom
from tests.factories.service import NOW, ServedWorld, open_world

MODEL: Final = "ab" * 32
SECRET: Final = bytes(range(32))


def _body(world: ServedWorld, room: CleanRoom) -> Object:
    nonce = world.service.challenge("run-1")
    return {"charge": "run-1", "evidence": world.attest(room, "run-1", nonce), "nonce": nonce}


def _release(world: ServedWorld, room: CleanRoom, body: Object, id: str = "release-1") -> Answer:  # noqa: A002
    return world.service.submit(room.signer, BANK_A, "key_release", body, id)


def test_the_clean_room_gets_the_data_key(world: ServedWorld, room: CleanRoom) -> None:
    """The sealed key opens with the clean room's private key and is the provider's data key."""
    body = _body(world, room)
    answer = _release(world, room, body)
    data_key = world.keys.data_key(HOSPITAL, "digits-key")
    assert data_key is not None
    expected = {"charge": "run-1", "contract": world.contract, "entry": answer.index, **body}
    del expected["nonce"]
    assert unseal(answer.envelope, room.sealing, expected) == {PARTITION: data_key.reveal()}


@pytest.mark.damages
def test_a_changed_row_sends_the_key_to_nobody_else(world: ServedWorld, room: CleanRoom) -> None:
    """Whom a key is sealed for, and which key, is of the signed entries: both rows are changed before the release."""
    body, thief = _body(world, room), X25519PrivateKey.generate()
    world.keys.create(HOSPITAL, "other-key")
    with world.book._writes.begin() as connection:  # noqa: SLF001 - as whoever may write to the database would
        x = base64url(thief.public_key().public_bytes_raw())
        connection.execute(text("update charge set sealing = :x"), {"x": x})
        connection.execute(text("update partition set data_key = 'other-key'"))
    answer = _release(world, room, body)
    data_key = world.keys.data_key(HOSPITAL, "digits-key")
    assert data_key is not None
    assert unseal(answer.envelope, room.sealing, {}) == {PARTITION: data_key.reveal()}
    with pytest.raises(Malformed, match="does not open"):
        unseal(answer.envelope, thief, {})


def test_a_challenge_is_for_the_clean_room_s_own_charge(world: ServedWorld, room: CleanRoom) -> None:
    """Another charge does not exist for it, and the consumer gets none before the run is posted."""
    for charge, status in (("run-9", 404), ("", 422)):
        requested = world.http.post(
            "/v1/challenges", json={"charge": charge}, headers=world.everybody.shown_by(room.signer)
        )
        assert requested.status_code == status
    refused = world.http.post("/v1/challenges", json={"charge": "run-1"}, headers=world.everybody.shown(BANK_A))
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")


def test_nobody_else_can_open_it(world: ServedWorld, room: CleanRoom) -> None:
    """Another private key, or another expiry, opens nothing."""
    answer = _release(world, room, _body(world, room))
    with pytest.raises(Malformed, match="does not open"):
        unseal(answer.envelope, X25519PrivateKey.generate(), {})
    assert answer.envelope is not None
    info = answer.envelope["info"]
    assert isinstance(info, dict)
    later = {**answer.envelope, "info": {**info, "not_after": NOW + 7_200_000}}
    with pytest.raises(Malformed, match="does not open"):
        unseal(later, room.sealing, {})


def test_the_same_command_again_gets_the_same_key_under_the_same_entry(world: ServedWorld, room: CleanRoom) -> None:
    """Its nonce is burnt, and the entry is found by its id."""
    body = _body(world, room)
    first, second = _release(world, room, body), _release(world, room, body)
    assert (second.repeated, second.index) == (True, first.index)
    assert second.envelope == first.envelope is not None


def test_a_burnt_nonce_releases_nothing(world: ServedWorld, room: CleanRoom) -> None:
    """Another command with a used nonce is refused and not recorded."""
    body = _body(world, room)
    _release(world, room, body)
    size = world.size
    with pytest.raises(Refused) as caught:
        _release(world, room, body, "release-2")
    assert (caught.value.status, caught.value.code, caught.value.field) == (
        403,
        "not_authorised",
        "body.nonce",
    )
    assert world.size == size


def test_the_log_is_not_searched_for_a_nonce_before_the_signature_verifies(world: ServedWorld, room: CleanRoom) -> None:
    """A used nonce, which only its entry tells from an open one, and a signature over other bytes: a bad signature."""
    body = _body(world, room)
    _release(world, room, body)
    raw = world.command_bytes(room.signer, BANK_A, "key_release", body, "release-2")
    path = PATHS["key_release"]
    bad = world.sign(room.signer, path, raw[:-1] + b" }", "release-2")
    for _ in range(PER_SENDER_MAX):
        refused = world.post(path, raw, bad)
        assert (refused.status_code, refused.json()["code"]) == (401, "signature_invalid")
    assert world.post(path, raw, bad).status_code == 429


def test_a_nonce_is_burnt_by_a_refused_release(world: ServedWorld, room: CleanRoom) -> None:
    """Evidence for another charge is refused by the policy, on record, and the nonce is gone."""
    nonce = world.service.challenge("run-1")
    body: Object = {"charge": "run-1", "evidence": world.attest(room, "run-9", nonce), "nonce": nonce}
    with pytest.raises(Refused) as caught:
        _release(world, room, body)
    assert (caught.value.code, caught.value.index) == ("policy_denied", world.size - 1)
    assert "attestation_charge" in [reason.code for reason in caught.value.reasons]
    again: Object = {**body, "evidence": world.attest(room, "run-1", nonce)}
    with pytest.raises(Refused) as caught:
        _release(world, room, again, "release-2")
    assert caught.value.field == "body.nonce"


def test_an_old_nonce_releases_nothing(world: ServedWorld, room: CleanRoom) -> None:
    """After 120 seconds the clean room must ask again."""
    body = _body(world, room)
    world.clock.now += 120_000
    with pytest.raises(Refused) as caught:
        _release(world, room, body)
    assert caught.value.field == "body.nonce"


def test_only_the_charge_s_clean_room_is_given_the_key(world: ServedWorld, room: CleanRoom) -> None:
    """The consumer's own key, though registered, releases nothing."""
    body = _body(world, room)
    with pytest.raises(Refused) as caught:
        world.service.submit(world.bank, BANK_A, "key_release", body, "release-1")
    assert caught.value.status == 403


def test_a_missing_data_key_is_withheld_and_the_entry_stands(
    world: ServedWorld, room: CleanRoom, tmp_path: Path
) -> None:
    """The release is on record; with the key back in its place the same command gets it."""
    path = tmp_path / "keys" / HOSPITAL / "digits-key"
    path.rename(path.with_suffix(".away"))
    body = _body(world, room)
    with pytest.raises(Refused) as caught:
        _release(world, room, body)
    assert (caught.value.status, caught.value.code) == (503, "key_withheld")
    assert caught.value.index == world.size - 1
    path.with_suffix(".away").rename(path)
    answer = _release(world, room, body)
    assert (answer.index, answer.repeated) == (caught.value.index, True)
    assert list(unseal(answer.envelope, room.sealing, {})) == [PARTITION]


def test_no_key_is_sealed_again_after_the_deadline(world: ServedWorld, room: CleanRoom) -> None:
    """A released key expires with its charge."""
    body = _body(world, room)
    _release(world, room, body)
    world.clock.now = world.begun + 3_600_000
    with pytest.raises(Refused) as caught:
        _release(world, room, body)
    assert (caught.value.status, caught.value.code) == (409, "conflict")


def test_no_key_is_sealed_again_after_the_post(world: ServedWorld, room: CleanRoom) -> None:
    """One charge, one run."""
    body = _body(world, room)
    _release(world, room, body)
    world.service.submit(room.signer, BANK_A, "post", {"charge": "run-1", "steps": 10}, "post-1")
    with pytest.raises(Refused) as caught:
        _release(world, room, body)
    assert (caught.value.status, caught.value.code) == (409, "conflict")


def _opening(world: ServedWorld, room: CleanRoom) -> Object:
    """A run that is posted, its model announced and released: what opens it in another clean room."""
    _release(world, room, _body(world, room))
    model: Object = {"charge": "run-1", "model": MODEL}
    world.service.submit(room.signer, BANK_A, "post", {"charge": "run-1", "steps": 80}, "post-1")
    world.service.submit(room.signer, BANK_A, "release_notice", model, "notice-1")
    world.service.submit(room.signer, BANK_A, "model_release", model, "model-1")
    inside, bank = CleanRoom("inside"), world.bank
    requested = world.http.post("/v1/challenges", json={"charge": "run-1"}, headers=world.everybody.shown(BANK_A))
    nonce = requested.json()["nonce"]
    evidence = world.attest(inside, "run-1", nonce, signer=bank)
    return {**model, "clean_room": inside.to_json(), "evidence": evidence, "nonce": nonce}


def test_the_clean_room_of_an_opening_deposits_no_key(world: ServedWorld, room: CleanRoom) -> None:
    """The key of the run's model is of the clean room that trained it: another would lose the model to the store."""
    inside = CleanRoom("inside")
    world.everybody.rooms[inside.signer.key_id] = inside.signer
    with pytest.raises(Refused, match="no key was deposited"):
        world.service.submit(world.bank, BANK_A, "model_opening", _opening(world, room), "opening-1")
    store = world.http.get("/v1/deposit-key", headers=world.everybody.shown_by(inside.signer)).json()["x"]
    with pytest.raises(Refused, match="the clean room of charge run-1 must sign it"):
        world.service.deposit_model_key(inside.signer, "run-1", MODEL, seal_deposit(bytes(32), store, "run-1", MODEL))
    key = bytes(range(32))
    world.service.deposit_model_key(room.signer, "run-1", MODEL, seal_deposit(key, store, "run-1", MODEL))
    assert world.keys.model_key("run-1", MODEL).reveal() == key


def test_no_model_key_is_sealed_again_for_an_hour_that_a_clock_correction_took_back(
    world: ServedWorld, room: CleanRoom
) -> None:
    """An opening of a time that is ahead gives its key then; after the correction not before that time comes."""
    store = world.http.get("/v1/deposit-key", headers=world.everybody.shown_by(room.signer)).json()["x"]
    world.keys.deposit_model_key("run-1", MODEL, seal_deposit(bytes(32), store, "run-1", MODEL))
    body, bank, right = _opening(world, room), world.bank, world.clock.now
    world.clock.now = ahead = right + 1_000
    first = world.service.submit(bank, BANK_A, "model_opening", body, "opening-1")
    assert first.envelope is not None
    world.clock.now = right
    claim = write(ClockClaim(ahead, "back", "a second ahead", right))
    signed: Object = {"signatures": [world.sro.sign(claim)], "time": right}
    world.service.submit(
        world.sro, SRO, "clock_correction", {"ahead": ahead, "reason": "a second ahead", **signed}, "back"
    )
    with pytest.raises(Refused, match="the hour of this opening is over") as caught:
        world.service.submit(bank, BANK_A, "model_opening", body, "opening-1")
    assert (caught.value.status, caught.value.code) == (409, "conflict")
    world.clock.now = ahead
    again = world.service.submit(bank, BANK_A, "model_opening", body, "opening-1")
    assert (again.repeated, again.index, again.envelope) == (True, first.index, first.envelope)


def test_authorise_only_answers_with_a_receipt_and_no_envelope(tmp_path: Path) -> None:
    """The provider's own key store obeys the receipt."""
    with open_world(tmp_path, KeyStore()) as world:
        room = CleanRoom()
        body = world.charge_body(world.found_service(), room)
        world.service.submit(world.bank, BANK_A, "charge", body, "run-1")
        answer = _release(world, room, _body(world, room))
    assert (answer.outcome, answer.envelope) == ("permitted", None)
    assert answer.receipt


def test_no_log_line_holds_the_data_key(world: ServedWorld, room: CleanRoom, caplog: pytest.LogCaptureFixture) -> None:
    """With every logger at its most talkative the key's bytes stay unsaid."""
    caplog.set_level(1)
    _release(world, room, _body(world, room))
    data_key = world.keys.data_key(HOSPITAL, "digits-key")
    assert data_key is not None
    assert data_key.reveal().hex() not in caplog.text
    assert repr(data_key.reveal()) not in caplog.text


class StoppedClock:
    """Stops whoever reads it first until it is let go."""

    def __init__(self, now: int) -> None:
        """Nobody reads it yet."""
        self._now, self.read, self.go = now, Event(), Event()

    def __call__(self) -> int:
        """Unix milliseconds."""
        self.read.set()
        assert self.go.wait(60)
        return self._now


def _submission(world: ServedWorld, room: CleanRoom, body: Object, name: str) -> tuple[Command, Submission]:
    raw = world.command_bytes(room.signer, BANK_A, "key_release", body, name)
    submission = Submission(raw, world.sign(room.signer, PATHS["key_release"], raw, name))
    return submission.command, submission


def test_a_nonce_that_another_process_burns_meanwhile_seals_no_key(world: ServedWorld, room: CleanRoom) -> None:
    """Between one's check and its decision another records a refusal with this nonce: the log says who was first."""
    clock = StoppedClock(world.clock.now)
    first = KeyReleases(world.book, world.keys, Challenges(SECRET, world.clock))
    second = KeyReleases(world.book, world.keys, Challenges(SECRET, clock))
    nonce = Challenges(SECRET, world.clock).issue("run-1", world.size)
    bad, good = (
        _submission(world, room, {"charge": "run-1", "evidence": world.attest(room, ran, nonce), "nonce": nonce}, name)
        for ran, name in (("run-9", "release-1"), ("run-1", "release-2"))
    )
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(second.release, *good)
        assert clock.read.wait(60)
        refused, _ = first.release(*bad)
        clock.go.set()
        outcome, envelope = waits.result(60)
    assert refused.code is Code.POLICY_DENIED
    # It is not recorded, as the writer saw the other's entry.
    assert (outcome.code, outcome.index, envelope) == (Code.CONFLICT, None, None)
    assert outcome.detail == f"entry {refused.index} has used the nonce up: request another"
    # However often the command is sent again, and to whichever process.
    for one in (first, second):
        with pytest.raises(Problem, match="answers no open challenge"):
            one.release(*good)
    assert world.keys.stored_envelope("release-2") is None
