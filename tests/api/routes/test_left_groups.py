"""Who leaves a group sees of it what it was part of, and nothing that the others do afterwards; nor what was denied."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.wire import canonical_json as c
from tests.factories.documents import PARTITION, SMALL, contract, dataset, policy
from tests.factories.people import BANK_A, BANK_B, BANK_C, CLINIC, HOSPITAL, MERGED, SRO
from tests.factories.service import ServedWorld, open_world

ROLES = {SRO: "SRO", HOSPITAL: "TDP", CLINIC: "TDP", BANK_A: "TDC", BANK_B: "TDC", BANK_C: "TDC", MERGED: "TDC"}


@pytest.fixture
def market(tmp_path: Path) -> Iterator[ServedWorld]:
    """Two banks with a contract each, under a cap of 5 on each lineage."""
    with open_world(tmp_path, volatile=True) as world:
        world.everybody.roles |= ROLES
        agreed = [contract(bank, starts=world.begun) for bank in (BANK_A, BANK_B)]
        governing = policy(world.begun, world.attester, lineage={"epsilon_max": "5"})
        for one in world.founding_with(roles=ROLES, governing=governing, contracts=agreed):
            world.found(one)
        world.contracts = {str(one["tdc"]): c.digest(c.dump(one)) for one in agreed}
        yield world


def read(world: ServedWorld, did: str, path: str, **query: str) -> Any:  # noqa: ANN401 - JSON
    """What an organisation is answered; the status where it is refused."""
    answer = world.http.get(path, params=query, headers=world.everybody.shown(did))
    return json.loads(answer.text) if answer.status_code == 200 else answer.status_code


def enter(world: ServedWorld, kind: str, **body: c.Json) -> str:
    """A report of the SRO; its outcome."""
    world.clock.now += 1_000
    return world.send(SRO, kind, body, f"{kind}-{world.size}").code.word


def test_who_left_a_group_sees_nothing_of_what_it_does_later(market: ServedWorld) -> None:
    """Neither the group's account, nor contracts that it signs and what is under them."""
    assert enter(market, "merger", organisation=BANK_A, parents=[BANK_B]) == "permitted"
    with market.read() as facts:
        group = f"lineage:{facts.organisations[BANK_A].node}"
    assert enter(market, "split", organisation=BANK_A, child=BANK_B) == "permitted"
    market.clock.now += 1_000
    assert market.submit(market.charge("a-run", BANK_A, SMALL))[0].code.word == "pending"

    def holders(did: str) -> set[str]:
        return {one["holder"] for one in read(market, did, "/v1/accounts", partition=PARTITION)["items"]}

    assert group in holders(BANK_A)
    assert group not in holders(BANK_B)
    market.found(market.document("dataset", dataset(CLINIC, "scans"), "scans", CLINIC, CLINIC))
    scans: c.Json = [{"dataset": "scans", "provider": CLINIC}]
    deal = contract(BANK_A, provider=CLINIC, starts=market.begun, id="deal", datasets=scans)
    market.found(market.document("contract", deal, "deal", BANK_A, BANK_A, CLINIC))
    digest = c.digest(c.dump(deal))
    assert market.submit(market.charge("refused", BANK_A, SMALL, contract=digest))[0].code.word == "policy_denied"
    paths = (
        f"/v1/contracts/{digest}",
        f"/v1/documents/{digest}",
        f"/v1/datasets/{CLINIC}/scans",
        "/v1/decisions/refused",
    )
    for path in paths:
        assert (read(market, BANK_B, path), read(market, BANK_C, path)) == (404, 404)
        assert read(market, BANK_A, path) != 404


def test_a_contract_of_before_is_still_its_own(market: ServedWorld) -> None:
    """Of the group that it was part of when the contract was signed."""
    assert enter(market, "merger", organisation=BANK_A, parents=[BANK_B]) == "permitted"
    assert enter(market, "split", organisation=BANK_A, child=BANK_B) == "permitted"
    assert read(market, BANK_B, f"/v1/contracts/{market.contracts[BANK_A]}")["consumer"] == BANK_A


def test_a_denied_merger_is_for_who_asked(market: ServedWorld) -> None:
    """It says how full accounts are, and binds no one; one that is permitted binds all, who may see it."""
    for bank in (BANK_A, BANK_B):
        assert {
            one.code.word for one in market.submit(*(market.charge(f"{bank[-9]}-{n}", bank) for n in range(5)))
        } == {"pending"}
    assert enter(market, "merger", organisation=MERGED, parents=[BANK_A, BANK_B], proposed=True) == "policy_denied"
    denied = f"/v1/decisions/merger-{market.size - 1}"
    assert read(market, SRO, denied)["outcome"] == "policy_denied"
    assert [read(market, did, denied) for did in (BANK_C, CLINIC)] == [404, 404]
    assert enter(market, "merger", organisation=MERGED, parents=[BANK_A, BANK_B]) == "permitted"
    assert read(market, BANK_C, f"/v1/decisions/merger-{market.size - 1}")["outcome"] == "permitted"
