"""A range over the partitions of two domains: what one policy shows rounded is not shown exactly by the other's."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from ledger.audit.replay import verify_book
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate
from tests.factories.documents import contract, dataset, partition, plan, policy
from tests.factories.people import BANK_A, BANK_B, CLINIC, HOSPITAL, LOG, ROLES, SRO
from tests.factories.stored import StoredWorld, no_step, open_world

MARKET: Final = "did:web:market-sro.example"
SALES: Final = f"{CLINIC}/sales"
ROUNDED: Final = "; the part of others is rounded up"


def found(world: StoredWorld) -> None:
    """Two domains with equal caps: one shows shared accounts exactly, the other rounded; a contract covers both."""
    world.found(
        *(world.registration(did, role) for did, role in {**ROLES, CLINIC: "TDP"}.items()),
        world.registration(MARKET, "SRO"),
    )
    wide: Any = {"lineage": {"epsilon_max": "6"}, "level": 1}
    market: Any = {**wide, "domain": "market", "id": "market-policy", "issuer": MARKET}
    sets: Any = [{"dataset": "digits", "provider": HOSPITAL}, {"dataset": "sales", "provider": CLINIC}]
    terms: Any = {"datasets": sets, "run": {"epsilon_max": "4"}, "tdps": [CLINIC, HOSPITAL]}
    agreed = [contract(bank, starts=world.begun, **terms) for bank in (BANK_A, BANK_B)]
    world.contracts = {str(one["tdc"]): c.digest(c.dump(one)) for one in agreed}
    exact, rounded = (
        policy(world.begun, **stated, shared_accounts=shows) for stated, shows in ((wide, "exact"), (market, "rounded"))
    )
    sales: Any = {**dataset(CLINIC, "sales"), "domain": "market"}
    world.found(
        world.document("policy", exact, "policy-1", SRO, SRO),
        world.document("policy", rounded, "policy-2", MARKET, MARKET),
        world.document("dataset", dataset(), "digits", HOSPITAL, HOSPITAL),
        world.document("dataset", sales, "sales", CLINIC, CLINIC),
    )
    opened: Any = partition("two", provider=CLINIC, dataset="sales", data_key="x")
    world.found(world.partition("one"), world.command(CLINIC, "partition", opened, "two"))
    for one in agreed:
        tdc = str(one["tdc"])
        world.found(world.document("contract", one, f"c-{one['id']}", tdc, tdc, CLINIC, HOSPITAL))


@pytest.mark.parametrize("exact_first", [True, False])
def test_a_refusal_shows_the_part_of_others_as_the_strictest_policy_says(tmp_path: Path, *, exact_first: bool) -> None:
    """Whichever partition stands for the group: by itself, and in a range."""
    with open_world(tmp_path, "sqlite", founded=False) as world:
        found(world)
        two = f"{SALES}/two"
        runs = [world.charge(f"b-{n}", BANK_B, plan(100 + n), partitions=(two,)) for n in range(10)]
        assert {one.code.word for one in world.submit(*runs)} == {"pending"}
        ranges: list[c.Json] = [
            {"dataset": f"{HOSPITAL}/digits", "first": "one", "last": "one"},
            {"dataset": SALES, "first": "two", "last": "two"},
        ]
        within = ranges if exact_first else ranges[::-1]
        alone, ranged = world.submit(
            world.charge("alone", BANK_A, plan(400), partitions=(two,)),
            world.charge("ranged", BANK_A, plan(400), partitions=(), ranges=within),
        )
        assert alone.code.word == ranged.code.word == "budget_exhausted"
        assert alone.detail.endswith(ROUNDED)
        assert ranged.detail.endswith(ROUNDED)
        verify_book(world.url, LOG, no_step, gate=gate)
