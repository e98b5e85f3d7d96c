"""Documents that callers store: each has a share of its own, and is told when there is room in it again."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import httpx
import pytest

from api.auth.caller_quotas import CallerQuotas
from api.http.quota_terms import QuotaTerms
from client.http.endpoints import DOCUMENTS, PROPOSALS, SIGNATURE_HEADER
from client.http.problems import Refused
from client.keys.signer import Signer
from ledger.book.document_store import KEEP_MS
from ledger.commands.registry import PATHS
from ledger.wire import canonical_json as c
from tests.factories.documents import contract
from tests.factories.people import BANK_A, HOSPITAL, SRO, CleanRoom
from tests.factories.service import ServedWorld, founded_world

SHARE = 8


def put(world: ServedWorld, signer: Signer, did: str, data: bytes, to: str = DOCUMENTS) -> httpx.Response:
    """Store bytes, or propose them."""
    path = f"{to}/{c.digest(data)}"
    shown = {**world.everybody.shown(did), SIGNATURE_HEADER: world.sign(signer, path, data, c.digest(data), "PUT")}
    return world.http.put(path, content=data, headers=shown)


def test_one_consumer_s_documents_leave_others_theirs(world: ServedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stores until it is refused, with the time of its own share; regulator, provider and clean room store on."""
    monkeypatch.setattr("ledger.book.document_store.CONSUMER_DOCUMENTS_MAX", SHARE)
    monkeypatch.setattr("ledger.book.document_store.DOCUMENTS_MAX", 4 * SHARE)
    room = CleanRoom()
    world.service.submit(world.bank, BANK_A, "charge", world.charge_body(world.contract, room), "run-1")
    nonce, answers = world.service.challenge("run-1"), list[httpx.Response]()
    while not answers or answers[-1].status_code == 200:
        answers.append(put(world, world.bank, BANK_A, b"%d" % len(answers)))
    refused = answers[-1]
    assert len(answers) == SHARE // 2 + 1
    assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
    assert refused.headers["retry-after"] == str(KEEP_MS // 1000)
    assert refused.json()["detail"].endswith(f"is used up: retry in {KEEP_MS // 1000} s")
    for signer, did in ((world.sro, SRO), (world.hospital, HOSPITAL)):
        assert put(world, signer, did, did.encode()).status_code == 200
    evidence = world.attest(room, "run-1", nonce)
    requested: c.Object = {"charge": "run-1", "evidence": evidence, "nonce": nonce}
    assert world.service.submit(room.signer, BANK_A, "key_release", requested).outcome == "permitted"
    # What was stored before is there, whatever is left.
    assert put(world, world.bank, BANK_A, b"0").status_code == 200
    world.clock.now += KEEP_MS
    assert put(world, world.bank, BANK_A, b"an hour later").status_code == 200


def test_what_all_callers_leave_is_answered_as_a_busy_service(
    world: ServedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """503 for a consumer, which has its own share yet, with the true time; what it leaves is a provider's."""
    monkeypatch.setattr("ledger.book.document_store.DOCUMENTS_MAX", SHARE)
    for number in range(2):
        assert put(world, world.bank, BANK_A, b"%d" % number).status_code == 200
    refused = put(world, world.bank, BANK_A, b"more")
    assert (refused.status_code, refused.json()["code"]) == (503, "busy")
    assert refused.headers["retry-after"] == str(KEEP_MS // 1000)
    assert put(world, world.hospital, HOSPITAL, b"mine").status_code == 200


def test_a_proposed_contract_is_in_its_party_s_share(world: ServedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its contract, signature and notice are documents of the party's."""
    monkeypatch.setattr("ledger.book.document_store.CONSUMER_DOCUMENTS_MAX", 2)
    assert put(world, world.bank, BANK_A, b"words").status_code == 200
    data = c.dump({**contract(BANK_A, starts=world.clock.now), "id": "letters"})
    with pytest.raises(Refused) as refused:
        world.service.propose_contract(world.bank, data)
    assert refused.value.code == "quota_exceeded"
    assert put(world, world.hospital, HOSPITAL, b"words of another").status_code == 200


@pytest.mark.parametrize("asked", ["store", "propose", "enter"])
def test_what_a_caller_has_read_through_is_its_pricing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    """Stored again and again, proposed, or entered under a tag of before: until its seconds are used up."""
    text = c.dump({"kind": "contract", "tdc": BANK_A, "tdps": ["a"] * 100})
    with founded_world(tmp_path, CallerQuotas(QuotaTerms(pricing_s_per_hour=600), clock=lambda: 0.0)) as world:
        stored = put(world, world.bank, BANK_A, text).json()
        entered: c.Object = {"document": stored["document"], "signatures": [stored["signature"]]}
        # As if each text took 250 seconds of the 600.
        seconds = count(0, 250)
        monkeypatch.setattr("api.auth.caller_quotas.time.thread_time", lambda: next(seconds))
        ask: dict[str, Callable[[], httpx.Response]] = {
            "store": lambda: put(world, world.bank, BANK_A, text),
            "propose": lambda: put(world, world.bank, BANK_A, text, PROPOSALS),
            "enter": lambda: _entering(world, entered),
        }
        answers = [ask[asked]() for _ in range(4)]
        assert [one.json().get("code") == "quota_exceeded" for one in answers] == [False, False, False, True]
        assert "seconds of pricing" in answers[-1].json()["detail"]
        assert put(world, world.hospital, HOSPITAL, b"words").status_code == 200


def _entering(world: ServedWorld, body: c.Object) -> httpx.Response:
    """A contract that replaces what is not the newest: nothing of it is recorded."""
    raw = world.command_bytes(world.bank, BANK_A, "contract", body, "stale")
    signature = world.sign(world.bank, PATHS["contract"], raw, "stale")
    return world.post(PATHS["contract"], raw, signature, **{"if-match": '"of-before"'})
