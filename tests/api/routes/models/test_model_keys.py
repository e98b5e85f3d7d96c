"""Deposits of sealed models' keys: by the clean room's own signature, or not at all."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from client.http.endpoints import DOCUMENTS, MODEL_KEYS, SIGNATURE_HEADER
from client.keys.sealed_model import seal_deposit
from client.keys.signer import Signer
from ledger.wire import canonical_json as c
from tests.factories.documents import MODEL
from tests.factories.people import BANK_A, CleanRoom
from tests.factories.service import ServedWorld

KEY = bytes(range(32))


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
    reported, kept = b"signed", b"sent instead"
    path, headers = f"{DOCUMENTS}/{c.digest(kept)}", {**token, "content-type": "application/octet-stream"}
    for over, status in ((reported, 401), (kept, 200)):
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
        reported = world.http.get("/v1/deposit-key", headers=world.everybody.shown_by(room.signer))
    assert (reported.status_code, reported.json()["code"]) == (503, "key_store")
    assert [one.getMessage() for one in caplog.records if one.name == "api.model_keys"] == ["the key store failed"] * 2
    folder.unlink()
    folder.with_suffix(".away").rename(folder)
    assert deposit(room.signer) == 200
