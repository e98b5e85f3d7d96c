"""Commands over HTTP: recorded once, answered again, and provable from what the service tells."""

from __future__ import annotations

import pytest

from client.http.endpoints import SIGNATURE_HEADER
from client.http.problems import Refused
from ledger.commands.entry import Entry
from ledger.crypto.detached_jws import verify
from ledger.verifier import Checkpoint, LogKey, verify_receipt
from ledger.wire import canonical_json as c
from tests.factories.documents import PARTITION, policy
from tests.factories.people import BANK_A, HOSPITAL, SRO, CleanRoom
from tests.factories.service import ServedWorld


def test_the_same_command_twice_is_one_entry(world: ServedWorld) -> None:
    """201 first, 200 after that, with the same index and the same body, and whenever it was signed."""
    raw = world.command_bytes(world.bank, BANK_A, "charge", world.charge_body(world.contract, CleanRoom()), "run-1")
    first = world.post("/v1/charges", raw, world.sign(world.bank, "/v1/charges", raw, "run-1"))
    size = world.size
    world.clock.now += 60_000
    second = world.post("/v1/charges", raw, world.sign(world.bank, "/v1/charges", raw, "run-1"))
    assert (first.status_code, second.status_code, world.size) == (201, 200, size)
    one, two = first.json(), second.json()
    assert (one["index"], one["body"], one["repeated"]) == (two["index"], two["body"], False)
    assert two["repeated"]


def test_the_same_id_for_another_command_is_refused(world: ServedWorld, room: CleanRoom) -> None:
    """The first command keeps its id."""
    size = world.size
    with pytest.raises(Refused) as caught:
        world.service.submit(world.bank, BANK_A, "charge", world.charge_body(world.contract, CleanRoom()), "run-1")
    assert (caught.value.status, caught.value.code, world.size) == (409, "id_reused", size)
    assert world.service.charge("run-1")["key_id"] == room.signer.key_id


def test_a_receipt_proves_its_entry_offline(world: ServedWorld, room: CleanRoom) -> None:
    """Entry, receipt and the pinned log key are enough; the entry is what was signed."""
    log = world.service.log()
    key = LogKey.parse(str(log["vkey"]))
    assert key == world.log
    index = world.service.charge("run-1")["index"]
    assert isinstance(index, int)
    data = world.service.entry(index)
    proven, checkpoint = verify_receipt(world.service.receipt("run-1"), data, key)
    assert (proven, checkpoint) == (index, Checkpoint.open(world.service.checkpoint(), key))
    assert Entry.parse(data).key_id == world.bank.key_id
    assert str(room.signer.jwk["x"]) in data.decode()


def test_a_refusal_tells_its_reasons_and_its_entry(world: ServedWorld) -> None:
    """A run above the contract's bound is denied, on record, with the numbers that mattered."""
    body = world.charge_body(world.contract, CleanRoom())
    plan = body["plan"]
    assert isinstance(plan, dict)
    with pytest.raises(Refused) as caught:
        world.service.submit(world.bank, BANK_A, "charge", {**body, "plan": {**plan, "steps": 400}}, "run-1")
    assert (caught.value.status, caught.value.code, caught.value.index) == (
        403,
        "policy_denied",
        world.size - 1,
    )
    assert "run_above_contract" in [reason.code for reason in caught.value.reasons]
    assert caught.value.id == "run-1"


def test_a_quote_records_nothing(world: ServedWorld) -> None:
    """It tells what a charge would get, permitted or not."""
    body = world.charge_body(world.contract, CleanRoom())
    size = world.size
    quoted = world.service.quote(world.bank, BANK_A, body)
    assert (quoted.outcome, quoted.index, quoted.receipt) == ("pending", None, None)
    with pytest.raises(Refused) as caught:
        world.service.quote(world.bank, BANK_A, {**body, "contract": "0" * 64})
    assert caught.value.index is None
    assert world.size == size


def test_the_account_shows_what_is_pending_and_what_fits(world: ServedWorld, room: CleanRoom) -> None:
    """One run pending: something is used, nothing is posted, and some runs like it still fit."""
    del room
    reported = world.service.accounts(PARTITION)
    assert reported["partition"] == PARTITION


def test_documents_are_named_by_their_digest(world: ServedWorld) -> None:
    """Storing one twice is storing it once, and each signature lies beside it."""
    data = c.dump({"kind": "note", "v": 1})
    first = world.service.put_document(world.hospital, data)
    assert world.service.put_document(world.hospital, data) == first
    world.clock.now += 1000
    later = world.service.put_document(world.hospital, data)
    assert later.document == first.document == c.digest(data)
    assert later.signature != first.signature
    with world.book.read() as facts:
        assert facts.documents[first.document] == data
        for stored in (first, later):
            verify(facts.documents[stored.signature].decode(), data, world.hospital.public)


def test_only_an_sro_stores_a_document_as_long_as_a_policy(world: ServedWorld) -> None:
    """A provider's longer one is refused; an SRO's is stored, and shown to others if it is a policy."""
    levels = [{"dataset": f"scans-{n}", "level": 2, "provider": HOSPITAL} for n in range(10_000)]
    data = c.dump(policy(levels=levels))
    with pytest.raises(Refused) as caught:
        world.service.put_document(world.hospital, data)
    assert (caught.value.status, caught.value.code) == (413, "too_large")
    for long, status in ((data, 200), (data.replace(b'"policy"', b'"polity"'), 404)):
        stored = world.service.put_document(world.sro, long)
        found = world.http.get(f"/v1/documents/{stored.document}", headers=world.everybody.shown(BANK_A))
        assert (found.status_code, found.content == long) == (status, status == 200)


def test_an_unsigned_command_is_refused_by_the_service_that_knows_everybody(world: ServedWorld) -> None:
    """Also where the actor and the key are registered, the signature is asked for."""
    size = world.size
    raw = world.command_bytes(world.hospital, HOSPITAL, "retirement", {"partition": PARTITION}, "retire-1")
    assert world.post("/v1/retirements", raw, None).status_code == 401
    signature = world.sign(world.bank, "/v1/retirements", raw, "retire-1")
    foreign = world.post("/v1/retirements", raw, signature, **world.everybody.shown(HOSPITAL))
    assert (foreign.status_code, foreign.json()["code"], world.size) == (401, "signature_invalid", size)
    assert SIGNATURE_HEADER in foreign.headers["www-authenticate"]


def test_somebody_else_s_partition_is_not_theirs_to_retire(world: ServedWorld) -> None:
    """Signed rightly by the wrong party."""
    with pytest.raises(Refused) as caught:
        world.service.submit(world.sro, SRO, "retirement", {"partition": PARTITION}, "retire-1")
    assert caught.value.status == 403
