"""Who sees the datasets, partitions and accounts of a provider: the consumers of its contracts, and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.wire import canonical_json as c
from tests.api.two_of_each import TwoOfEach
from tests.factories.documents import contract
from tests.factories.people import BANK_A, BANK_B, CLINIC, HOSPITAL
from tests.factories.service import NOW, OPENED, ServedWorld, open_world

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


def test_a_revoked_contract_shows_what_was_spent_on(two: TwoOfEach) -> None:
    """Its consumer sees the partitions that it has an account of, and none that opens later; no one's datasets."""
    world = two.world
    assert _statuses(world, BANK_B, (*ADDRESSES, *OF_PROVIDER)) == {200}
    world.service.submit(two.clinic, CLINIC, "revocation", {"contract": two.foreign.contract})
    opened: c.Object = {**OPENED, "data_key": "clinic-key-2", "partition": "2027-q1", "provider": CLINIC}
    world.service.submit(two.clinic, CLINIC, "partition", opened, "partition-clinic-2")
    assert _statuses(world, BANK_B, ADDRESSES) == {200}
    assert _statuses(world, BANK_B, ADDRESSES, "2027-q1") == {404}
    assert _statuses(world, BANK_B, OF_PROVIDER) == {404}
    assert _statuses(world, CLINIC, ADDRESSES, "2027-q1") == {200}
