"""Contracts that wait for signatures: who sees them, how they leave the list, and that they decide nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest
from msgspec import structs

from api.routes.proposal_search import OPEN_MAX
from api.routes.proposed_contracts import OPEN_MS, REFRESH_MS, SEARCH_MS, Proposals, next_notice
from client.http.endpoints import BYTES_TYPE, DOCUMENTS, PROPOSALS, SIGNATURE_HEADER
from client.keys.signer import Signer
from ledger.crypto.detached_jws import Call
from ledger.wire import canonical_json as c
from tests.api.console.test_statements import counted
from tests.api.two_of_each import TwoOfEach
from tests.factories.documents import contract
from tests.factories.people import BANK_A, CLINIC, HOSPITAL
from tests.factories.service import ServedWorld, open_world

ROLES: Final = ("SRO", "TDP", "TDC")


@pytest.fixture
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoOfEach]:
    """Two of everything."""
    with open_world(tmp_path_factory.mktemp("proposals")) as world:
        world.contract = world.found_service()
        yield TwoOfEach(world)


def _text(world: ServedWorld, name: str = "letters", **changes: Any) -> bytes:  # noqa: ANN401 - JSON
    return c.dump({**contract(BANK_A, starts=world.clock.now), "id": name, **changes})


def _put(world: ServedWorld, signer: Signer, data: bytes, to: str = PROPOSALS) -> httpx.Response:
    path = f"{to}/{c.digest(data)}"
    headers = {SIGNATURE_HEADER: world.sign(signer, path, data, c.digest(data), "PUT"), "content-type": BYTES_TYPE}
    return world.http.put(path, content=data, headers=headers)


def _listed(pairs: TwoOfEach, did: str) -> list[dict[str, Any]]:
    answer = pairs.world.http.get(PROPOSALS, headers=pairs.world.everybody.shown(did))
    found: list[dict[str, Any]] = answer.raise_for_status().json()["items"]
    return found


def _to_sign(pairs: TwoOfEach, role: str) -> list[str]:
    answer = pairs.world.http.get("/v1/inbox", headers=pairs.people[role].shown)
    return [one["document"] for one in answer.raise_for_status().json()["to_sign"]]


def test_a_proposal_is_signed_by_one_after_another_and_entered(pairs: TwoOfEach) -> None:
    """It waits for those who have not signed, and what they signed with is what it is entered with."""
    world, data = pairs.world, _text(pairs.world)
    size = world.size
    first = _put(world, world.bank, data).raise_for_status().json()
    assert (first["unsigned"], [one["organisation"] for one in first["signed"]]) == ([HOSPITAL], [BANK_A])
    assert (_to_sign(pairs, "TDP"), _to_sign(pairs, "TDC")) == ([c.digest(data)], [])
    again = _put(world, world.bank, data)
    assert (again.status_code, again.json()) == (200, first)
    both = _put(world, world.hospital, data).raise_for_status().json()
    assert both["unsigned"] == _to_sign(pairs, "TDP") == []
    assert world.size == size
    body: c.Object = {"document": c.digest(data), "signatures": [one["signature"] for one in both["signed"]]}
    world.service.submit(world.bank, BANK_A, "contract", body, "letters-1")
    assert _listed(pairs, BANK_A) == []
    assert _put(world, world.bank, data).status_code == 409


def test_only_its_signers_see_it(pairs: TwoOfEach) -> None:
    """No regulator, no auditor, no other party: not the list, and not by whose inbox."""
    _put(pairs.world, pairs.world.bank, _text(pairs.world)).raise_for_status()
    seen = {role: len(_listed(pairs, pairs.people[role].did)) for role in ROLES}
    assert seen == {"SRO": 0, "TDP": 1, "TDC": 1}
    assert _listed(pairs, CLINIC) == []
    assert pairs.world.http.get(PROPOSALS, headers=pairs.people["AUDITOR"].shown).status_code == 403


def test_what_is_no_proposal_is_refused(pairs: TwoOfEach) -> None:
    """Of others, of another's signature, over other bytes, over, too long, or no contract."""
    world, data = pairs.world, _text(pairs.world)
    assert _put(world, pairs.clinic, data).status_code == 403
    path = f"{PROPOSALS}/{c.digest(data)}"
    signed = world.sign(world.bank, path, data, c.digest(data), "PUT")
    headers = {SIGNATURE_HEADER: signed, "content-type": BYTES_TYPE}
    foreign = world.http.put(path, content=data, headers={**headers, **world.everybody.shown(HOSPITAL)})
    assert foreign.status_code == 403
    assert world.http.put(path, content=data + b" ", headers=headers).status_code == 422
    stored = {SIGNATURE_HEADER: world.sign(world.bank, f"{DOCUMENTS}/{c.digest(data)}", data, c.digest(data), "PUT")}
    assert world.http.put(path, content=data, headers={**headers, **stored}).status_code == 401
    over = contract(BANK_A, starts=world.clock.now - OPEN_MS * 4)
    for raw, status in ((c.dump(over), 422), (b"{}", 422), (b" " * 300_000, 413)):
        assert _put(world, world.bank, raw).status_code == status
    assert _listed(pairs, BANK_A) == []


def test_documents_propose_nothing(pairs: TwoOfEach) -> None:
    """Neither a contract that was stored to be entered, nor a signature that somebody has put into another's mouth."""
    world, data = pairs.world, _text(pairs.world)
    assert _put(world, world.bank, data, DOCUMENTS).status_code == 200
    call = Call("PUT", f"{world.url}{PROPOSALS}/{c.digest(data)}", world.clock.now // 1000, c.digest(data))
    header, _, value = world.bank.sign(b"something else", call).rpartition("..")
    elsewhere = structs.replace(call, id="0")
    for said in (f"{header}..{value}", pairs.clinic.sign(data, call), world.bank.sign(data, elsewhere)):
        assert _put(world, pairs.clinic, said.encode(), DOCUMENTS).status_code == 200
    with world.book.read() as facts:
        assert Proposals(world.url, world.clock).all(facts) == ()
    assert _listed(pairs, BANK_A) == []


def test_another_process_finds_what_this_one_stored(pairs: TwoOfEach) -> None:
    """And after thirty days neither does, nor under another address of the service."""
    world, data = pairs.world, _text(pairs.world)
    _put(world, world.bank, data).raise_for_status()
    other, moved = Proposals(world.url, world.clock), Proposals("https://elsewhere.example", world.clock)
    with world.book.read() as facts:
        (found,) = other.all(facts)
        assert (found.document, found.organisation) == (c.digest(data), BANK_A)
        assert moved.all(facts) == ()
    world.clock.now += OPEN_MS
    with world.book.read() as facts:
        assert other.all(facts) == Proposals(world.url, world.clock).all(facts) == ()
    assert _listed(pairs, BANK_A) == []


def test_the_documents_are_searched_when_a_notice_says_so_and_not_otherwise(pairs: TwoOfEach) -> None:
    """A process that has searched once looks up one digest at a time; after an hour it searches in any case."""
    world = pairs.world
    other = Proposals(world.url, world.clock)
    searched = list[int]()

    def seen() -> int:
        world.clock.now += REFRESH_MS
        with counted(world.book) as asked, world.book.read() as facts:
            found = other.all(facts)
        searched.append(sum("substr" in statement for statement in asked))
        assert searched[-1] or len(asked) <= 3
        return len(found)

    assert seen() == 0
    assert seen() == 0
    for number in (1, 2):
        _put(world, world.bank, _text(world, f"letters-{number}")).raise_for_status()
    assert (seen(), seen()) == (2, 2)
    _put(world, world.hospital, _text(world, "letters-1")).raise_for_status()
    assert (seen(), seen()) == (3, 3)
    assert searched == [1, 0, 1, 0, 1, 0]
    with world.book.read() as facts:
        assert next_notice(facts) == 3
    world.clock.now += SEARCH_MS
    assert (seen(), searched[-1]) == (3, 1)


def test_proposals_of_one_organisation_are_few(pairs: TwoOfEach) -> None:
    """The next one is refused until one expires; those of others are not fewer for it."""
    world = pairs.world
    for number in range(OPEN_MAX):
        assert _put(world, world.bank, _text(world, f"letters-{number}")).status_code == 200
    assert _put(world, world.bank, _text(world, "letters-more")).status_code == 429
    assert _put(world, world.hospital, _text(world, "letters-0")).status_code == 200
    assert len(_listed(pairs, BANK_A)) == OPEN_MAX
    world.clock.now += OPEN_MS
    assert _put(world, world.bank, _text(world, "letters-more")).status_code == 200


def test_nobody_learns_of_a_contract_by_proposing_its_next_version(pairs: TwoOfEach) -> None:
    """Its parties must sign too, which its parties alone are shown."""
    world, name = pairs.world, "digits-bank-b"
    foreign = _put(world, world.bank, _text(world, name, version=1)).raise_for_status().json()
    unknown = _put(world, world.bank, _text(world, "digits-of-nobody", version=1)).raise_for_status().json()
    assert foreign["unsigned"] == unknown["unsigned"] == [HOSPITAL]
    own: dict[str, Any] = {"tdps": [CLINIC], "datasets": [{"dataset": "digits", "provider": CLINIC}]}
    assert _put(world, world.bank, _text(world, "digits-bank-a", **own, version=1)).status_code == 409
    proposed = _put(world, world.bank, _text(world, "digits-bank-a", **own, version=2)).raise_for_status().json()
    assert proposed["unsigned"] == [CLINIC, HOSPITAL]
