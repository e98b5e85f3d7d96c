"""What a search for proposals costs whom, when somebody stores documents that are slow to read as contracts."""

from __future__ import annotations

from itertools import count
from threading import Thread

import pytest

from api.auth.caller_quotas import CallerQuotas
from api.http.quota_terms import QuotaTerms
from api.routes.proposal_search import Proposed, Terms
from api.routes.proposed_contracts import REFRESH_MS, SEARCH_MS, Proposals, next_notice, notice
from client.http.endpoints import DOCUMENTS, PROPOSALS
from ledger.crypto.detached_jws import Call
from ledger.wire import canonical_json as c
from policy.documents import ContractDocument
from tests.api.routes.submissions.test_document_quotas import put
from tests.factories.documents import contract
from tests.factories.people import BANK_A, HOSPITAL
from tests.factories.service import ServedWorld, founded_world

SLOW = 4


def _slow(number: int) -> bytes:
    return (b"kind: contract\nn: %d\nx:\n" % number + b"- {}\n" * 52_000)[: (1 << 18) - 100]


def _store_slow(world: ServedWorld, slow: int = SLOW) -> None:
    """Documents that are no contracts, and the bank's signatures of proposals over them, which no route has taken."""
    for data in map(_slow, range(slow)):
        signed = world.sign(world.bank, f"{PROPOSALS}/{c.digest(data)}", data, c.digest(data), "PUT")
        for one in (data, signed.encode()):
            assert put(world, world.bank, BANK_A, one).status_code == 200


def _propose(world: ServedWorld, name: str = "letters") -> str:
    data = c.dump({**contract(BANK_A, starts=world.clock.now), "id": name})
    assert put(world, world.hospital, HOSPITAL, data, PROPOSALS).status_code == 200
    return c.digest(data)


def _all(world: ServedWorld, proposals: Proposals) -> list[str]:
    with world.book.read() as facts:
        return [one.document for one in proposals.all(facts)]


def _paid_by(world: ServedWorld) -> tuple[Proposals, list[str]]:
    """The list of a process that has just begun, and who pays for each document that it reads."""
    paid = list[str]()
    return Proposals(world.url, world.clock, lambda organisation, _: paid.append(organisation)), paid


def test_a_document_is_read_once_for_whoever_asks(world: ServedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """One document for one reader, in the time of who signed it; never again, at no notice and after no hour."""
    monkeypatch.setattr("api.routes.proposal_search.READ_S", 0.0)
    own = _propose(world)
    _store_slow(world)
    proposals, paid = _paid_by(world)
    for reader in range(1, 2 * SLOW):
        found = _all(world, proposals)
        assert len(paid) <= reader
    assert (sorted(paid), found) == (sorted([BANK_A] * SLOW + [HOSPITAL]), [own])
    with world.book.read() as facts:
        news = notice(next_notice(facts))
    world.book.put_document(news)
    for later in (REFRESH_MS, SEARCH_MS):
        world.clock.now += later
        for _ in range(2 * SLOW):
            assert _all(world, proposals) == [own]
    assert len(paid) == SLOW + 1


def test_what_is_found_is_listed_before_all_is_read(world: ServedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hourly search that many readers make loses nothing meanwhile."""
    own = _propose(world)
    _store_slow(world)
    monkeypatch.setattr("api.routes.proposal_search.READ_S", 0.0)
    world.clock.now += SEARCH_MS
    for _ in range(2 * SLOW):
        answer = world.http.get(PROPOSALS, headers=world.everybody.shown(HOSPITAL)).raise_for_status()
        assert [one["document"] for one in answer.json()["items"]] == [own]


def test_who_took_least_time_is_read_first(world: ServedWorld) -> None:
    """However many slow documents another stored, and however new: its proposal is there after the first of them."""
    own = _propose(world)
    world.clock.now += 1_000
    _store_slow(world)
    proposals, paid = _paid_by(world)
    for _ in range(2):
        found = _all(world, proposals)
    assert (paid[:2], found) == ([BANK_A, HOSPITAL], [own])


def test_nothing_is_read_that_nobody_signed(world: ServedWorld) -> None:
    """A signature over other bytes costs no organisation the time of a document, and is no proposal."""
    data = _slow(0)
    assert put(world, world.bank, BANK_A, data).status_code == 200
    call = Call("PUT", f"{world.url}{PROPOSALS}/{c.digest(data)}", world.clock.now // 1000, c.digest(data))
    header, _, value = world.hospital.sign(b"something else", call).rpartition("..")
    assert put(world, world.bank, BANK_A, f"{header}..{value}".encode(), DOCUMENTS).status_code == 200
    proposals, paid = _paid_by(world)
    assert (_all(world, proposals), paid) == ([], [])


def test_others_wait_for_no_document(world: ServedWorld) -> None:
    """While one reader has a document read, others list what is known, and a proposal is added."""
    _store_slow(world, 1)
    terms = Terms.of(ContractDocument.parse(c.dump(contract(BANK_A, starts=world.clock.now))))
    one = Proposed("0" * 64, BANK_A, "1" * 64, world.clock.now, terms)
    listed = list[list[str]]()

    def add_and_list() -> None:
        proposals.add(one)
        listed.append(_all(world, proposals))

    def meanwhile(organisation: str, seconds: float) -> None:
        other = Thread(target=add_and_list, daemon=True)
        other.start()
        other.join(60)
        assert (organisation, seconds > 0, listed) == (BANK_A, True, [[one.document]])

    proposals = Proposals(world.url, world.clock, meanwhile)
    assert _all(world, proposals) == [one.document]
    assert listed


def test_who_signed_pays_for_the_reading(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is there when it is read: the signer has no time left, and the reader all of its own."""
    quotas = CallerQuotas(QuotaTerms(pricing_s_per_hour=600), clock=lambda: 0.0)
    with founded_world(tmp_path_factory.mktemp("proposals"), quotas) as world:
        _store_slow(world, 1)
        # As if it took 700 seconds.
        seconds = count(0, 700)
        monkeypatch.setattr("api.routes.proposal_search.time.thread_time", lambda: next(seconds))
        shown = world.everybody.shown(HOSPITAL)
        for _ in range(2):
            assert world.http.get(PROPOSALS, headers=shown).json()["items"] == []
        refused = put(world, world.bank, BANK_A, b"words")
        assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
        assert "seconds of pricing" in refused.json()["detail"]
        assert put(world, world.hospital, HOSPITAL, b"words").status_code == 200
