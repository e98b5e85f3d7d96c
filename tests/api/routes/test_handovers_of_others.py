"""A member of a coalition sees who the others are, and nothing of what they give to whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from ledger.wire import canonical_json as c
from tests.factories.documents import contract, plan
from tests.factories.people import BANK_A, BANK_B, BANK_C, HOSPITAL, SRO, CleanRoom
from tests.factories.service import open_world

ROLES: Final = {SRO: "SRO", HOSPITAL: "TDP", BANK_A: "TDC", BANK_B: "TDC", BANK_C: "TDC"}


@pytest.mark.parametrize("received", [False, True])
def test_another_s_handover_is_no_part_of_one_s_own_lineage(tmp_path: Path, *, received: bool) -> None:
    """In a coalition with the giver, and where one got another model from it; the regulator sees all."""
    with open_world(tmp_path) as world:
        world.everybody.roles |= ROLES
        for did in ROLES:
            world.everybody.organisations[world.signers[did].key_id] = did
        terms: Any = {"run": {"epsilon_max": "1"}, "runs_max": 10}
        agreed = [contract(bank, starts=world.begun, **terms) for bank in (BANK_A, BANK_B)]
        partitions: Any = {"2026-q4": {"data_key": "digits-key"}}
        for one in world.founding_with(roles=ROLES, governing=world.policy(), partitions=partitions, contracts=agreed):
            world.found(one)
        world.contracts = {bank: c.digest(c.dump(one)) for one, bank in zip(agreed, (BANK_A, BANK_B), strict=True)}
        assert world.send(SRO, "coalition", {"members": [BANK_A, BANK_B], "epsilon": "8"}, "coalition").index
        for name in ("one", "two"):
            room = CleanRoom(name).signer
            world.everybody.rooms[room.key_id] = room
            done = [*world.submit(world.charge(name, BANK_B, plan(noise="4", steps=10)))]
            done += world.submit(world.settle(name, 10, BANK_B))
            assert [one.code.word for one in done] == ["pending", "posted"]

        def hand_over(run: str, recipient: str) -> int:
            agreement = world.agreement(run, BANK_B, recipient, 9)
            body: c.Object = {"agreement": agreement, "charge": run, "recipient": recipient}
            index = world.send(BANK_B, "transfer", body, f"gift-{run}").index
            assert index is not None
            return index

        if received:
            hand_over("one", BANK_A)
        secret = hand_over("two", BANK_C)

        def nodes(caller: str, path: str) -> dict[int, Any]:
            answer = world.http.get(path, headers=world.everybody.shown(caller)).raise_for_status().json()
            return {node["index"]: node for node in answer["nodes" if "nodes" in answer else "items"]}

        for path in (f"/v1/lineage/{BANK_A}", "/v1/lineage"):
            assert secret in nodes(SRO, path)
            seen = nodes(BANK_A, path)
            assert BANK_B in {node["organisation"] for node in seen.values()}
            assert BANK_C not in {node["organisation"] for node in seen.values()}
            arrows = {arrow["node"] for node in seen.values() for arrow in (*node["parents"], *node["children"])}
            assert secret not in seen.keys() | arrows
            assert arrows <= seen.keys()
