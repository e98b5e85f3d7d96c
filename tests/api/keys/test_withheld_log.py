"""Every key that is withheld leaves a line of log with its charge, its command and why, and no secret; then it is had.

Deposits of sealed models' keys stand beside: by the clean room's own signature, or not at all.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from api.keys.data_key_store import FileKeyStore, Secret
from api.middleware.json_log import JsonLines
from client.http.endpoints import DOCUMENTS, MODEL_KEYS, SIGNATURE_HEADER
from client.http.problems import Refused
from client.keys.sealed_model import seal_deposit
from client.keys.signer import Signer
from ledger.commands.registry import PATHS
from ledger.wire import canonical_json as c
from tests.factories.documents import PARTITION
from tests.factories.people import BANK_A, HOSPITAL, CleanRoom
from tests.factories.service import ServedWorld, open_world

MODEL = "a" * 64
KEY = bytes(range(32))


class Failing(FileKeyStore):
    """A store that fails in a way of its own until it is mended."""

    broken = True

    def data_key(self, provider: str, name: str) -> Secret | None:
        """As the file store, or an error that it does not name."""
        if self.broken:
            message = "the disk says something secret"
            raise OSError(message)
        return super().data_key(provider, name)


def _lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    records = [one for one in caplog.records if one.name == "api.withheld"]
    return [json.loads(JsonLines().format(one)) for one in records]


def _body(world: ServedWorld, room: CleanRoom, charge: str = "run-1") -> c.Object:
    nonce = world.service.challenge(charge)
    return {"charge": charge, "evidence": world.attest(room, charge, nonce), "nonce": nonce}


def _burnt(world: ServedWorld, room: CleanRoom) -> c.Object:
    body = _body(world, room)
    world.service.submit(room.signer, BANK_A, "key_release", body, "release-0")
    return body


def _expired(world: ServedWorld, room: CleanRoom) -> c.Object:
    body = _body(world, room)
    world.clock.now += 120_000
    return body


def _of_another(world: ServedWorld, room: CleanRoom) -> c.Object:
    other = CleanRoom()
    world.service.submit(world.bank, BANK_A, "charge", world.charge_body(world.contract, other), "run-2")
    return {**_body(world, room), "nonce": world.service.challenge("run-2")}


def _foreign_evidence(world: ServedWorld, room: CleanRoom) -> c.Object:
    nonce = world.service.challenge("run-1")
    return {"charge": "run-1", "evidence": world.attest(room, "run-9", nonce), "nonce": nonce}


def _of_no_charge(world: ServedWorld, room: CleanRoom) -> c.Object:
    return {**_body(world, room), "charge": "run-9"}


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (_burnt, (403, "not_authorised body.nonce", False)),
        (_expired, (403, "not_authorised body.nonce", False)),
        (_of_another, (403, "not_authorised body.nonce", False)),
        (_foreign_evidence, (403, "policy_denied: attestation_charge", True)),
        (_of_no_charge, (404, "not_found body.charge", False)),
    ],
)
def test_a_refused_key_leaves_its_line(
    world: ServedWorld,
    room: CleanRoom,
    caplog: pytest.LogCaptureFixture,
    make: Callable[[ServedWorld, CleanRoom], c.Object],
    told: tuple[int, str, bool],
) -> None:
    """One line for one command, recorded or not; the nonce is not in it."""
    status, reason, recorded = told
    body = make(world, room)
    size = world.size
    with caplog.at_level(logging.INFO), pytest.raises(Refused) as caught:
        world.service.submit(room.signer, BANK_A, "key_release", body, "release-1")
    assert caught.value.status == status
    (line,) = _lines(caplog)
    assert (line["charge"], line["key_release"], line["reason"]) == (body["charge"], "release-1", reason)
    assert (line["level"], line["message"]) == ("warning", "key withheld")
    assert str(body["nonce"]) not in json.dumps(line)
    assert world.size == size + recorded


def test_a_signature_that_is_wrong_leaves_its_line_and_a_dry_run_none(
    world: ServedWorld, room: CleanRoom, caplog: pytest.LogCaptureFixture
) -> None:
    """Made for another request: 401 and a line. What asks for no key is withheld none."""
    body = _body(world, room)
    raw = world.command_bytes(room.signer, BANK_A, "key_release", body, "release-1")
    path = PATHS["key_release"]
    with caplog.at_level(logging.INFO):
        assert world.post(path, raw, world.sign(room.signer, path, raw, "release-2")).status_code == 401
        (line,) = _lines(caplog)
        world.post(f"{path}?dry_run=true", raw, world.sign(room.signer, path, raw, "release-1"))
        assert world.service.submit(room.signer, BANK_A, "key_release", body, "release-1").envelope
        assert _lines(caplog) == [line]
    assert (line["charge"], line["reason"]) == ("run-1", "signature_invalid x-jws-signature")


def test_a_key_that_is_missing_leaves_its_line_and_is_had_once_it_is_back(
    world: ServedWorld, room: CleanRoom, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The entry stands; the same command gets the key, and no further line."""
    path, body = tmp_path / "keys" / HOSPITAL / "digits-key", _body(world, room)
    path.rename(path.with_suffix(".away"))
    with caplog.at_level(logging.INFO):
        with pytest.raises(Refused, match="key_withheld"):
            world.service.submit(room.signer, BANK_A, "key_release", body, "release-1")
        path.with_suffix(".away").rename(path)
        answer = world.service.submit(room.signer, BANK_A, "key_release", body, "release-1")
        (line,) = _lines(caplog)
    assert str(line["reason"]).startswith("key_withheld: the data key digits-key of ")
    assert answer.repeated
    assert list(answer.envelope or {}) == ["info", "sealed", "suite", "v"]


def test_a_store_that_fails_as_nobody_foresaw_withholds_the_key_and_gives_it_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """500 without a word of the fault; a line with its kind; the entry stands, and mended it gives the key."""
    store = Failing(tmp_path / "keys")
    with open_world(tmp_path, store) as world:
        room = CleanRoom()
        world.service.submit(world.bank, BANK_A, "charge", world.charge_body(world.found_service(), room), "run-1")
        body, size = _body(world, room), world.size
        with caplog.at_level(logging.INFO), pytest.raises(Refused) as caught:
            world.service.submit(room.signer, BANK_A, "key_release", body, "release-1")
        assert (caught.value.status, caught.value.code, world.size) == (500, "internal", size + 1)
        (line,) = _lines(caplog)
        assert (line["charge"], line["key_release"], line["reason"]) == ("run-1", "release-1", "OSError")
        store.broken = False
        answer = world.service.submit(room.signer, BANK_A, "key_release", body, "release-1")
        assert answer.envelope is not None
        assert (answer.repeated, answer.index, list(_sealed(answer.envelope))) == (True, size, [PARTITION])


def _sealed(envelope: c.Object) -> c.Object:
    """The sealed keys of an envelope, by partition."""
    sealed = envelope["sealed"]
    assert isinstance(sealed, dict)
    return sealed


@pytest.fixture
def deposit(world: ServedWorld, room: CleanRoom) -> Callable[..., int]:
    """Leaves a model's key for ``run-1`` with the store, by whose signature is said; the status."""
    store = world.http.get("/v1/deposit-key", headers=world.everybody.shown_by(room.signer)).json()["x"]

    def left(signer: Signer | None, key: bytes = KEY, at: str = MODEL_KEYS, model: str = MODEL) -> int:
        sealed = seal_deposit(key, store, "run-1", MODEL)
        raw = c.dump({"charge": "run-1", "model": MODEL, "sealed": sealed})
        signature = None if signer is None else world.sign(signer, at, raw, model)
        return world.post(MODEL_KEYS, raw, signature, **world.everybody.shown_by(room.signer)).status_code

    return left


def test_a_token_alone_deposits_nothing(world: ServedWorld, room: CleanRoom, deposit: Callable[..., int]) -> None:
    """Unsigned, or signed by others or for another request: 401, and the place is still free for the clean room's."""
    other, thief = CleanRoom(), bytes(32)
    world.service.submit(world.bank, BANK_A, "charge", world.charge_body(world.contract, other), "run-2")
    assert deposit(None, thief) == 401
    for signer in (world.bank, other.signer, Signer.generate()):
        assert deposit(signer, thief) == 401
    assert deposit(room.signer, thief, "/v1/documents") == 401
    assert deposit(room.signer, thief, model="b" * 64) == 401
    assert deposit(room.signer) == 200
    assert world.keys.model_key("run-1", MODEL).reveal() == KEY
    assert deposit(room.signer) == 200
    assert deposit(room.signer, thief) == 422


def test_a_signature_over_other_bytes_deposits_and_stores_nothing(world: ServedWorld, room: CleanRoom) -> None:
    """By the right key, for this very request, of what was not sent."""
    store = world.http.get("/v1/deposit-key", headers=world.everybody.shown_by(room.signer)).json()["x"]
    deposits = [
        c.dump({"charge": "run-1", "model": MODEL, "sealed": seal_deposit(key, store, "run-1", MODEL)})
        for key in (KEY, bytes(32))
    ]
    token = world.everybody.shown_by(room.signer)
    jws = world.sign(room.signer, MODEL_KEYS, deposits[0], MODEL)
    refused = world.post(MODEL_KEYS, deposits[1], jws, **token)
    assert (refused.status_code, refused.json()["code"]) == (401, "signature_invalid")
    assert world.post(MODEL_KEYS, deposits[0], jws, **token).status_code == 200
    told, kept = b"signed", b"sent instead"
    path, headers = f"{DOCUMENTS}/{c.digest(kept)}", {**token, "content-type": "application/octet-stream"}
    for over, status in ((told, 401), (kept, 200)):
        headers[SIGNATURE_HEADER] = world.sign(room.signer, path, over, c.digest(kept), "PUT")
        assert world.http.put(path, content=kept, headers=headers).status_code == status


def test_a_store_that_cannot_keep_a_deposit_says_so(
    world: ServedWorld, room: CleanRoom, deposit: Callable[..., int], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """503 for the deposit and for the store's key, with a line; once it can, it keeps it."""
    folder = tmp_path / "keys" / "models"
    folder.rename(folder.with_suffix(".away"))
    folder.write_text("no folder")
    with caplog.at_level(logging.WARNING):
        assert deposit(room.signer) == 503
        told = world.http.get("/v1/deposit-key", headers=world.everybody.shown_by(room.signer))
    assert (told.status_code, told.json()["code"]) == (503, "key_store")
    assert [one.getMessage() for one in caplog.records if one.name == "api.model_keys"] == ["the key store failed"] * 2
    folder.unlink()
    folder.with_suffix(".away").rename(folder)
    assert deposit(room.signer) == 200
