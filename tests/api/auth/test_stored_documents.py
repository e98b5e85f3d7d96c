"""Who reads a stored document: by an entry that names it, or by what it says, which is read once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import api.auth.stored_documents as rules
from api.auth.authorisation import Caller
from api.auth.caller_quotas import CallerQuotas
from api.auth.stored_documents import NAMED_MAX, ReadDocuments, storer_of
from api.http.problems import Problem
from api.http.quota_terms import QuotaTerms
from client.http.problems import Refused
from ledger.domain.roles import CCR, SRO, TDC, TDP, TSO
from ledger.store.snapshot import Snapshot
from ledger.wire import canonical_json as c
from policy.documents.document_text import read_text
from tests.api.two_of_each import TwoOfEach
from tests.factories.documents import contract
from tests.factories.people import BANK_A, BANK_B, CLINIC, HOSPITAL, CleanRoom
from tests.factories.service import NOW, ServedWorld, open_world


@pytest.fixture
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoOfEach]:
    """Two of everything."""
    with open_world(tmp_path_factory.mktemp("documents")) as world:
        world.contract = world.found_service()
        yield TwoOfEach(world)


def status(pairs: TwoOfEach, role: str, sha256: str, entry: str = "") -> int:
    """What a role's caller gets for a document."""
    query = {"entry": entry} if entry else {}
    return pairs.world.http.get(f"/v1/documents/{sha256}", params=query, headers=pairs.people[role].shown).status_code


def request_of(world: ServedWorld, name: str) -> dict[str, Any]:
    """The request of an entry by its command's id."""
    with world.book.read() as facts:
        index = facts.entry_index(name)
        assert index is not None
        found: dict[str, Any] = json.loads(facts.entry(index))["body"]["request"]
        return found


def test_no_charge_of_one_s_own_opens_another_s_document(pairs: TwoOfEach) -> None:
    """A foreign contract, foreign evidence and one's own signature, as what one's own run is to be."""
    world, foreign = pairs.world, pairs.foreign.contract
    evidence = request_of(world, "key-of-run-2")["evidence"]
    proposed = c.dump({"kind": "contract", "tdc": BANK_B, "tdps": [CLINIC]})
    stored = world.service.put_document(pairs.other_bank, proposed)
    for number, sha256 in enumerate((foreign, evidence, stored.document, stored.signature)):
        assert status(pairs, "TDC", sha256) == 404
        charge = {**pairs.charge(pairs.own, CleanRoom()), "pipeline": sha256}
        assert world.service.submit(world.bank, BANK_A, "charge", charge, f"probe-{number}").outcome == "pending"
        assert status(pairs, "TDC", sha256, f"probe-{number}") == 404
    assert status(pairs, "SRO", foreign) == 200


def test_no_refusal_of_one_s_own_opens_another_s_document(pairs: TwoOfEach) -> None:
    """A clean room asks for its key with another's evidence, a bank enters what others agreed on as its contract."""
    world = pairs.world
    evidence = request_of(world, "key-of-run-2")["evidence"]
    room = CleanRoom()
    world.service.submit(world.bank, BANK_A, "charge", pairs.charge(pairs.own, room), "run-5")
    nonce = world.service.challenge("run-5")
    body: c.Object = {"charge": "run-5", "evidence": evidence, "nonce": nonce}
    with pytest.raises(Refused, match="policy_denied"):
        world.service.submit(room.signer, BANK_A, "key_release", body, "asked")
    agreed = c.dump({**contract(BANK_B, CLINIC, starts=NOW), "id": "theirs"})
    words, other = (world.service.put_document(signer, agreed) for signer in (pairs.other_bank, pairs.clinic))
    entering: c.Object = {"document": words.document, "signatures": [words.signature, other.signature]}
    with pytest.raises(Refused, match="policy_denied") as refused:
        world.service.submit(world.bank, BANK_A, "contract", entering, "entering")
    assert refused.value.index is not None
    for sha256, entry in ((evidence, "asked"), (words.document, "entering"), (words.signature, "entering")):
        assert status(pairs, "TDC", sha256, entry) == 404
        assert status(pairs, "SRO", sha256, entry) == 200


def test_what_an_entry_entered_is_read_by_whoever_sees_it(pairs: TwoOfEach) -> None:
    """Evidence of its own run, signatures and contract by provider, consumer and clean room; what it runs, by none."""
    world = pairs.world
    evidence = request_of(world, "key-of-run-1")["evidence"]
    for role in ("TDP", "TDC", "CCR"):
        assert status(pairs, role, evidence, "key-of-run-1") == 200
        assert status(pairs, role, pairs.own.contract, "run-1") == 200
        assert status(pairs, role, pairs.foreign.contract, "run-1") == 404
    assert status(pairs, "TDC", evidence) == 404
    assert status(pairs, "TDC", pairs.own.contract) == 200
    runs = world.service.put_document(world.bank, b"what runs").document
    body = {**pairs.charge(pairs.own, CleanRoom()), "pipeline": runs}
    world.service.submit(world.bank, BANK_A, "charge", body, "stated")
    assert [status(pairs, role, runs, "stated") for role in ("TDP", "TDC", "SRO", "AUDITOR")] == [404, 404, 200, 200]


def test_a_model_that_was_given_opens_no_contract(pairs: TwoOfEach) -> None:
    """The recipient sees the run that made it, and not what its giver had agreed on."""
    world = pairs.world
    agreement = world.agreement(pairs.foreign.run, BANK_B, BANK_A, 9)
    gift: c.Object = {"agreement": agreement, "charge": pairs.foreign.run, "giver": BANK_B, "recipient": BANK_A}
    world.service.submit(pairs.other_bank, BANK_B, "transfer", gift, "gift")
    shown = world.http.get(f"/v1/charges/{pairs.foreign.run}", headers=pairs.people["TDC"].shown)
    assert (shown.status_code, shown.json()["contract"]) == (200, pairs.foreign.contract)
    assert status(pairs, "TDC", pairs.foreign.contract, pairs.foreign.run) == 404


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Every text that is read through from now on."""
    found: list[bytes] = []

    def counted(data: bytes, size_max: int) -> object:
        found.append(data)
        return read_text(data, size_max)

    monkeypatch.setattr(rules, "read_text", counted)
    return found


def test_a_document_is_read_through_once(world: ServedWorld, parsed: list[bytes]) -> None:
    """Whoever asks, and however often; what it costs is its first reader's pricing."""
    data = f"kind: contract\ntdc: {BANK_A}\ntdps: [{', '.join(['a'] * 20_000)}]\n".encode()
    sha256 = world.service.put_document(world.bank, data).document
    shown = world.everybody.shown(HOSPITAL)
    answers = [world.http.get(f"/v1/documents/{sha256}", headers=world.everybody.shown(BANK_A)) for _ in range(3)]
    hidden = [world.http.get(f"/v1/documents/{sha256}", headers=shown) for _ in range(3)]
    assert [one.status_code for one in (*answers, *hidden)] == [200] * 3 + [404] * 3
    assert parsed == [data]


def _text(tdps: list[str]) -> bytes:
    return c.dump({"kind": "contract", "tdc": BANK_A, "tdps": [*tdps]})


def test_the_first_reading_is_the_reader_s_pricing(world: ServedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is charged, and refused once its seconds are used up; what is known already is read all the same."""
    seconds = iter(range(0, 1_000, 5))
    monkeypatch.setattr("api.auth.caller_quotas.time.thread_time", lambda: next(seconds))
    quotas = CallerQuotas(QuotaTerms(pricing_s_per_hour=8), clock=lambda: 0.0)
    documents, caller = ReadDocuments(quotas), Caller(BANK_A, (TDC,))
    one, two, three = (world.book.put_document(_text([name])) for name in ("x", "y", "z"))
    with world.book.read() as facts:
        assert documents.read(caller, facts, one, None) == _text(["x"])
        assert documents.read(caller, facts, two, None) == _text(["y"])
        with pytest.raises(Problem, match="seconds of pricing"):
            documents.read(caller, facts, three, None)
        assert documents.read(caller, facts, one, None) == _text(["x"])
        assert documents.read(Caller(BANK_B, (TDC,)), facts, three, None) is None
        assert documents.read(caller, facts, three, None) == _text(["z"])


def test_a_clean_room_has_nothing_read_through(world: ServedWorld, parsed: list[bytes]) -> None:
    """It reads by entries alone."""
    name = world.book.put_document(_text([HOSPITAL]))
    with world.book.read() as facts:
        assert ReadDocuments(CallerQuotas()).read(Caller(BANK_A, (CCR,), "run-1"), facts, name, None) is None
    assert parsed == []


def test_what_is_kept_of_a_document_is_bounded(
    world: ServedWorld, parsed: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many documents, the one asked for least recently is read again; and so many names of each."""
    monkeypatch.setattr(rules, "KNOWN_MAX", 2)
    documents, caller = ReadDocuments(CallerQuotas()), Caller(BANK_A, (TDC,))
    names = [world.book.put_document(_text([name])) for name in ("x", "y", "z")]
    many = world.book.put_document(_text([f"did:web:{number}.example" for number in range(NAMED_MAX)]))
    with world.book.read() as facts:
        for place in (0, 1, 0, 2, 0, 1):
            assert documents.read(caller, facts, names[place], None) is not None
        assert [one[-4:-3] for one in parsed] == [b"x", b"y", b"z", b"y"]
        assert documents.read(caller, facts, many, None) is None


def test_what_a_document_says_decides_for_whom_it_is(world: ServedWorld) -> None:
    """Parties and issuers of waivers for a contract, who sees the provider for advice, everyone for what governs."""
    agreed: c.Object = {"kind": "contract", "tdc": BANK_B, "tdps": [CLINIC], "waivers": [{"issuer": HOSPITAL}, 1]}
    advice: c.Object = {"kind": "recommendation", "provider": HOSPITAL}
    texts: list[tuple[bytes, dict[str, bool]]] = [
        (c.dump(agreed), {BANK_A: False, BANK_B: True, CLINIC: True, HOSPITAL: True}),
        (c.dump(advice), {BANK_A: True, BANK_B: False, CLINIC: False, HOSPITAL: True}),
        (b"kind: policy\n", dict.fromkeys((BANK_A, BANK_B, CLINIC), True)),
        (b"kind: note\n", dict.fromkeys((BANK_A, BANK_B, CLINIC), False)),
        (b"[policy]", dict.fromkeys((BANK_A, BANK_B), False)),
        (b"kind: [policy]\n", dict.fromkeys((BANK_A, BANK_B), False)),
        (b"\xff", dict.fromkeys((BANK_A, BANK_B), False)),
        (c.dump({"kind": "contract", "tdc": 1, "tdps": "all", "waivers": None}), {BANK_A: False}),
    ]
    documents = ReadDocuments(CallerQuotas())
    roles = {BANK_A: TDC, BANK_B: TDC, CLINIC: TDP, HOSPITAL: TDP}
    for data, expected in texts:
        name = world.book.put_document(data)
        with world.book.read() as facts:
            read = _reader(documents, facts, name)
            assert {did: read(Caller(did, (roles[did],))) for did in expected} == expected, data


def _reader(documents: ReadDocuments, facts: Snapshot, name: str) -> Callable[[Caller], bool]:
    return lambda caller: documents.read(caller, facts, name, None) is not None


def test_as_whom_a_caller_stores(pairs: TwoOfEach) -> None:
    """Who governs or provides, a consumer, and a clean room while its run is pending."""
    with pairs.world.book.read() as facts:
        found = {role: storer_of(Caller(BANK_A, (role,)), facts) for role in (SRO, TDP, TSO, TDC)}
        both = storer_of(Caller(BANK_A, (TDC, TDP)), facts)
        rooms = [storer_of(Caller(BANK_A, (CCR,), name), facts) for name in ("run-1", "run-3", "never")]
    assert {role: one.provides for role, one in found.items()} == {SRO: True, TDP: True, TSO: True, TDC: False}
    assert both.provides
    assert (found[SRO].quarters, found[TDC].quarters) == (4, 2)
    assert [(one.charge, one.pending, one.quarters) for one in rooms] == [
        ("run-1", True, 3),
        ("run-3", False, 2),
        ("never", False, 2),
    ]
