"""What a consumer is shown of the account that it shares with its competitors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ledger.commands.registry import PATHS
from ledger.wire import canonical_json as c
from tests.factories.documents import PARTITION, contract, plan
from tests.factories.people import BANK_A, BANK_B, HOSPITAL, SRO, CleanRoom
from tests.factories.service import ServedWorld, open_world

STEPS = (70, 71, 73)


@contextmanager
def _market(folder: Path, **said: str) -> Iterator[ServedWorld]:
    """One hospital and two banks with a contract each, under a policy that says more."""
    folder.mkdir(exist_ok=True)
    with open_world(folder) as world:
        roles = {SRO: "SRO", HOSPITAL: "TDP", BANK_A: "TDC", BANK_B: "TDC"}
        world.everybody.roles |= roles
        for did, signer in world.signers.items():
            world.everybody.organisations[signer.key_id] = did
        agreed = [
            contract(bank, starts=world.begun, run={"epsilon_max": "1"}, runs_max=10) for bank in (BANK_A, BANK_B)
        ]
        opened: dict[str, c.Object] = {"2026-q4": {"data_key": "digits-key"}}
        governing = {**world.policy(), **said}
        for one in world.founding_with(roles=roles, governing=governing, partitions=opened, contracts=agreed):
            world.found(one)
        for document, bank in zip(agreed, (BANK_A, BANK_B), strict=True):
            world.contracts[bank] = c.digest(c.dump(document))
        yield world


def _charge(world: ServedWorld, bank: str, steps: int, name: str) -> None:
    body = {**world.charge_body(world.contracts[bank], CleanRoom(name)), "plan": plan(noise="4", steps=steps)}
    world.service.submit(world.signers[bank], bank, "charge", body, name)


def _refused(world: ServedWorld, bank: str) -> Any:  # noqa: ANN401 - JSON
    """What a refusal says is left."""
    body: c.Object = {**world.charge_body(world.contracts[bank], CleanRoom("more")), "plan": plan(steps=10_000)}
    raw = world.command_bytes(world.signers[bank], bank, "charge", body, "more")
    answer = world.post(PATHS["charge"], raw, world.sign(world.signers[bank], PATHS["charge"], raw, "more"))
    assert answer.status_code in {403, 409}
    return answer.json()["remaining"]


def _shown(world: ServedWorld, did: str) -> dict[str, Any]:
    """Everyone's account as an organisation is shown it."""
    answer = world.http.get(f"/v1/accounts?partition={PARTITION}", headers=world.everybody.shown(did)).json()
    (found,) = (one for one in answer["items"] if one["holder"] == "global")
    return {name: value for name, value in found.items() if name != "under_its_cap"} | {
        "used": found["under_its_cap"] and found["under_its_cap"]["used"]
    }


def _loss(shown: dict[str, Any]) -> list[int]:
    return [int(a) + int(b) for a, b in zip(shown["posted"]["finite"], shown["pending"]["finite"], strict=True)]


def test_a_competitor_s_plan_cannot_be_told_from_another(tmp_path: Path) -> None:
    """Its runs differ by a step, by three: the provider sees that, the other bank one answer, never too small."""
    theirs, exact = [], []
    for place, steps in enumerate(STEPS):
        with _market(tmp_path / str(place)) as world:
            _charge(world, BANK_A, 10, "own")
            _charge(world, BANK_B, steps, "theirs")
            theirs.append(_shown(world, BANK_A))
            exact.append(_shown(world, HOSPITAL))
            proof = f"/v1/accounts/global/proof?partition={PARTITION}"
            hidden = world.http.get(proof, headers=world.everybody.shown(BANK_A)).json()
            assert (hidden["status"], hidden["field"]) == (403, "holder")
            theirs[-1]["remaining"] = _refused(world, BANK_A)
    assert theirs[0] == theirs[1] == theirs[2]
    assert len({str(one) for one in exact}) == len(STEPS)
    for shown, true in zip(theirs, exact, strict=True):
        assert all(told >= counts for told, counts in zip(_loss(shown), _loss(true), strict=True))
        # One's own run is pending, and known exactly; of others' nothing tells whether it is.
        pending = [*zip(shown["pending"]["finite"], true["pending"]["finite"], strict=True)]
        assert all(int(told) <= int(counts) for told, counts in pending)
        assert any(int(told) < int(counts) for told, counts in pending)


def test_a_policy_may_show_the_shared_account_exactly(tmp_path: Path) -> None:
    """Then a bank is shown what the provider is."""
    with _market(tmp_path, shared_accounts="exact") as world:
        _charge(world, BANK_A, 10, "own")
        _charge(world, BANK_B, 70, "theirs")
        assert _shown(world, BANK_A) == _shown(world, HOSPITAL)
