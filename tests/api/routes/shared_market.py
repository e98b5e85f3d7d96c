"""One hospital and two banks that share its accounts, over HTTP, and what each of them is shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ledger.wire import canonical_json as c
from tests.factories.documents import PARTITION, contract, plan
from tests.factories.people import BANK_A, BANK_B, HOSPITAL, SRO, CleanRoom
from tests.factories.service import ServedWorld, open_world

VARYING: Final = re.compile("[0-9a-f]{64}|20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]*|1[0-9]{12}")
"""Digests of documents and moments, which are of one market."""


@contextmanager
def market(folder: Path, epsilon: str = "6", **said: c.Json) -> Iterator[ServedWorld]:
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
        opened: dict[str, c.Object] = {"2026-q4": {"data_key": "digits-key", "epsilon": epsilon}}
        governing = {**world.policy(), **said}
        for one in world.founding_with(roles=roles, governing=governing, partitions=opened, contracts=agreed):
            world.found(one)
        for document, bank in zip(agreed, (BANK_A, BANK_B), strict=True):
            world.contracts[bank] = c.digest(c.dump(document))
        yield world


def charge(world: ServedWorld, bank: str, steps: int, name: str) -> None:
    """One run of a bank, pending."""
    body = {**world.charge_body(world.contracts[bank], CleanRoom(name)), "plan": plan(noise="4", steps=steps)}
    world.service.submit(world.signers[bank], bank, "charge", body, name)


def shared_account(world: ServedWorld, did: str) -> dict[str, Any]:
    """Everyone's account as an organisation is shown it."""
    answer = world.http.get(f"/v1/accounts?partition={PARTITION}", headers=world.everybody.shown(did)).json()
    (found,) = (one for one in answer["items"] if one["holder"] == "global")
    return {name: value for name, value in found.items() if name != "under_its_cap"} | {
        "used": found["under_its_cap"] and found["under_its_cap"]["used"]
    }
