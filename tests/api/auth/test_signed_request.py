"""A signature is for one request: its method, its URL, its time and its id. Anything else is 401 and moves nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from client.http.endpoints import DOCUMENTS, SIGNATURE_HEADER
from client.http.problems import Refused
from ledger.commands.entry import Entry
from ledger.crypto.detached_jws import Call, call_of
from ledger.crypto.organisation_keys import parse_organisation_key
from ledger.domain.command import Command
from ledger.wire import canonical_json as c
from tests.factories.documents import PARTITION
from tests.factories.people import BANK_A, HOSPITAL, SRO, CleanRoom
from tests.factories.service import ServedWorld
from tests.ledger.crypto.test_organisation_keys import CASES, Case

_PATH = "/v1/charges"


def _charge(world: ServedWorld) -> bytes:
    return world.command_bytes(world.bank, BANK_A, "charge", world.charge_body(world.contract, CleanRoom()), "run-1")


WRONG: dict[str, tuple[Callable[[Call], Call | None], str]] = {
    "unbound": (lambda _: None, "signature.header"),
    "method": (lambda call: Call("PUT", call.url, call.time_s, call.id), "signature.header.htm"),
    "path": (lambda call: Call(call.method, call.url.replace("charges", "voids"), call.time_s, call.id), ".htu"),
    "host": (lambda call: Call(call.method, f"https://other.example{_PATH}", call.time_s, call.id), ".htu"),
    "origin form": (lambda call: Call(call.method, _PATH, call.time_s, call.id), ".htu"),
    "query": (lambda call: Call(call.method, f"{call.url}?", call.time_s, call.id), ".htu"),
    "late": (lambda call: Call(call.method, call.url, call.time_s - 301, call.id), ".iat"),
    "early": (lambda call: Call(call.method, call.url, call.time_s + 301, call.id), ".iat"),
    "id": (lambda call: Call(call.method, call.url, call.time_s, "run-2"), ".jti"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_signature_for_another_request_is_refused_by_name(world: ServedWorld, fault: str) -> None:
    """Each member in turn, correctly signed; the command itself is one that would be recorded."""
    raw, size = _charge(world), world.size
    change, field = WRONG[fault]
    call = change(Call("POST", f"{world.url}{_PATH}", world.clock.now // 1000, "run-1"))
    response = world.post(_PATH, raw, world.bank.sign(raw, call))
    assert (response.status_code, response.json()["code"]) == (401, "signature_invalid")
    assert response.json()["detail"].partition(": ")[0].endswith(field)
    assert world.size == size
    assert world.post(_PATH, raw, world.sign(world.bank, _PATH, raw, "run-1")).status_code == 201


@pytest.mark.parametrize("off_s", [-300, 300])
def test_five_minutes_either_way_are_now(world: ServedWorld, off_s: int) -> None:
    """The edges belong to it."""
    raw = _charge(world)
    call = Call("POST", f"{world.url}{_PATH}", world.clock.now // 1000 + off_s, "run-1")
    assert world.post(_PATH, raw, world.bank.sign(raw, call)).status_code == 201


def test_a_caught_request_is_the_same_command_and_then_nothing(world: ServedWorld) -> None:
    """Within its time the same answer, after it 401; and only the same organisation's token gets that far."""
    raw = _charge(world)
    signature = world.sign(world.bank, _PATH, raw, "run-1")
    first = world.post(_PATH, raw, signature)
    size = world.size
    again = world.post(_PATH, raw, signature)
    assert (first.status_code, again.status_code, again.json()["index"]) == (201, 200, first.json()["index"])
    stolen = world.post(_PATH, raw, signature, **world.everybody.shown(HOSPITAL))
    assert stolen.status_code == 403
    world.clock.now += 301_000
    late = world.post(_PATH, raw, signature)
    assert (late.status_code, late.json()["code"], world.size) == (401, "signature_invalid", size)


def test_a_stolen_token_alone_moves_nothing(world: ServedWorld) -> None:
    """The bank's token with no signature, or with one of somebody else's key under its own name."""
    raw, size = _charge(world), world.size
    shown = world.everybody.shown(BANK_A)
    assert world.post(_PATH, raw, None, **shown).json()["code"] == "signature_missing"
    for thief in (world.sro, world.hospital):
        response = world.post(_PATH, raw, world.sign(thief, _PATH, raw, "run-1"), **shown)
        assert (response.status_code, response.json()["code"]) == (401, "signature_invalid")
    assert world.size == size


def test_the_signature_stands_in_the_entry_with_its_request(world: ServedWorld, room: CleanRoom) -> None:
    """Whoever holds the entry sees where and when it was signed, and can verify it."""
    del room
    index = world.service.charge("run-1")["index"]
    assert isinstance(index, int)
    entry = Entry.parse(world.service.entry(index))
    assert call_of(entry.signature) == Call("POST", f"{world.url}{_PATH}", world.clock.now // 1000, "run-1")


def test_documents_and_quotes_are_bound_too(world: ServedWorld) -> None:
    """A document's id is its digest; a signature for a charge is none for a quote."""
    data = c.dump({"kind": "note", "v": 1})
    path = f"{DOCUMENTS}/{c.digest(data)}"
    for signature in (
        world.hospital.sign(data),
        world.sign(world.hospital, path, data, "note-1", "PUT"),
        world.sign(world.hospital, f"{DOCUMENTS}/{'0' * 64}", data, c.digest(data), "PUT"),
        world.sign(world.hospital, path, data, c.digest(data), "POST"),
    ):
        response = world.http.put(path, content=data, headers={SIGNATURE_HEADER: signature})
        assert (response.status_code, response.json()["code"]) == (401, "signature_invalid")
    raw = _charge(world)
    requested = world.post("/v1/quotes", raw, world.sign(world.bank, _PATH, raw, "run-1"))
    assert (requested.status_code, requested.json()["code"]) == (401, "signature_invalid")


def test_a_client_whose_clock_is_wrong_is_told_so(world: ServedWorld) -> None:
    """In one sentence, and nothing is recorded."""
    world.clock.now -= 400_000
    raw = world.command_bytes(world.hospital, HOSPITAL, "retirement", {"partition": PARTITION}, "retire-1")
    signature = world.sign(world.hospital, "/v1/retirements", raw, "retire-1")
    world.clock.now += 400_000
    response = world.post("/v1/retirements", raw, signature)
    assert "must lie within 300 s of the service's clock" in response.json()["detail"]
    with pytest.raises(Refused):
        world.service.submit(world.sro, SRO, "retirement", {"partition": PARTITION}, "retire-1")


def _detached(case: Case, payload: bytes, call: Call | None) -> str:
    """A detached JWS by a key of another kind than our signer's, for a request or for none."""
    algorithm, jwk, signed = case
    key_id = parse_organisation_key(jwk, "key").thumbprint
    reported = call.to_json() if call else {}
    header = c.base64url(c.dump({"alg": algorithm, "b64": False, "crit": ["b64"], "kid": key_id, **reported}))
    return f"{header}..{c.base64url(signed(header.encode() + b'.' + payload))}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_every_kind_of_key_signs_for_one_request(world: ServedWorld, case: Case) -> None:
    """RSA and P-256 as Ed25519: what names this request passes and is kept in the log; what names another does not."""
    did, path = "did:web:bank-b.example", "/v1/coalitions"
    key_id = parse_organisation_key(case[1], "key").thumbprint
    claim: c.Object = {"key": case[1], "name": "Bank B", "organisation": did, "roles": ["SRO"]}
    body = {**claim, "possession": _detached(case, c.dump(claim), None)}
    world.service.submit(world.sro, SRO, "organisation", body, "organisation-b")
    declared: c.Object = {"epsilon": "4", "members": [BANK_A, did]}
    raw = Command("coalition", "coalition-1", did, key_id, declared).to_bytes()
    shown, size = world.everybody.shown(did), world.size
    right = Call("POST", f"{world.url}{path}", world.clock.now // 1000, "coalition-1")
    for call, status in (
        (None, 401),
        (Call("POST", f"{world.url}/v1/mergers", right.time_s, right.id), 401),
        (Call("POST", right.url, right.time_s - 301, right.id), 401),
        (right, 201),
    ):
        assert world.post(path, raw, _detached(case, raw, call), **shown).status_code == status
    with world.book.read() as facts:
        assert call_of(Entry.parse(facts.entry(size)).signature) == right
