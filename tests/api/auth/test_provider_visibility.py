"""Who sees the datasets, partitions and accounts of a provider: the consumers of its contracts, no other provider."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.wire import canonical_json as c
from tests.api.two_of_each import Things, TwoOfEach
from tests.factories.documents import contract, dataset
from tests.factories.people import BANK_A, BOTH, CLINIC, HOSPITAL, CleanRoom
from tests.factories.service import NOW, ServedWorld, open_world

ADDRESSES = (
    "/v1/partitions/{0}/digits/{1}",
    "/v1/accounts?partition={0}/digits/{1}",
    "/v1/account-history?partition={0}/digits/{1}",
)
OF_PROVIDER = ("/v1/datasets/{0}/digits", "/v1/recommendations/{0}/digits", "/v1/streams/{0}/claims")


@pytest.fixture
def two(tmp_path: Path) -> Iterator[TwoOfEach]:
    """Two hospitals with a bank each, and a contract of both hospitals with one of the banks."""
    with open_world(tmp_path) as world:
        world.contract = world.found_service()
        yield TwoOfEach(world)


def _statuses(world: ServedWorld, did: str, addresses: tuple[str, ...], partition: str = "2026-q4") -> set[int]:
    """What the reads about the clinic answer an organisation."""
    shown = world.everybody.shown(did)
    return {world.http.get(one.format(CLINIC, partition), headers=shown).status_code for one in addresses}


def test_providers_of_one_contract_see_nothing_more_of_each_other(two: TwoOfEach) -> None:
    """Before it and after; its consumer does."""
    world = two.world
    assert _statuses(world, HOSPITAL, (*ADDRESSES, *OF_PROVIDER)) == {404}
    datasets: list[c.Object] = [
        {"dataset": "digits", "provider": HOSPITAL},
        {"dataset": "claims", "provider": CLINIC},
    ]
    agreed = contract(BANK_A, HOSPITAL, NOW, id="joint", tdps=[HOSPITAL, CLINIC], datasets=datasets)
    digest, _ = world.enter(
        "contract", {**agreed, "run": {"epsilon_max": "1"}}, BANK_A, world.bank, world.hospital, two.clinic
    )
    assert _statuses(world, HOSPITAL, (*ADDRESSES, *OF_PROVIDER)) == {404}
    assert world.http.get(f"/v1/contracts/{digest}", headers=world.everybody.shown(HOSPITAL)).status_code == 200
    assert _statuses(world, BANK_A, (*ADDRESSES, *OF_PROVIDER)) == {200}


def test_a_provider_that_consumes_too_finds_no_partition_by_a_charge(two: TwoOfEach) -> None:
    """Of a contract that it is a provider of: what it may not see is answered as what is not there."""
    world = two.world
    datasets: list[c.Object] = [{"dataset": "digits", "provider": BOTH}, {"dataset": "digits", "provider": CLINIC}]
    world.enter("dataset", dataset(BOTH), BOTH, two.both)
    agreed = contract(BANK_A, BOTH, NOW, id="joint", tdps=[BOTH, CLINIC], datasets=datasets)
    digest, _ = world.enter(
        "contract", {**agreed, "run": {"epsilon_max": "1"}}, BANK_A, world.bank, two.both, two.clinic
    )
    answers = []
    for name in ("2026-q4", "2099-q1"):
        things = Things(digest, "run-9", f"{CLINIC}/digits/{name}", "run-9")
        raw = world.command_bytes(two.both, BOTH, "charge", two.charge(things, CleanRoom()), f"seek-{name}")
        found = world.post("/v1/quotes", raw, world.sign(two.both, "/v1/quotes", raw, f"seek-{name}"))
        answers.append((found.status_code, found.json()["detail"].replace(name, "")))
    assert answers[0] == answers[1]
    assert answers[0][0] == 404
