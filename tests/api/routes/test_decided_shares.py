"""A consumer that charges, voids and charges again, to find what others have used of the account that they share.

Where the policy has charges decided on the rounded part of others it finds that part and no more; where it does not,
it finds the exact sum.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from pathlib import Path
from typing import Any, Final

import pytest

from client.http.endpoints import QUOTES
from ledger.commands.registry import PATHS
from ledger.wire import canonical_json as c
from tests.api.routes.shared_market import VARYING, charge, market
from tests.factories.documents import plan
from tests.factories.people import BANK_A, BANK_B, HOSPITAL, SRO, CleanRoom
from tests.factories.service import ServedWorld

THEIRS: Final = (73, 76)
"""Steps of the competitor's run that are within one step of the rounding."""
STEPS_MOST: Final = 256
SEALS: Final = ("receipt", "run_epsilon", "signature")
"""Members of an answer that are of one market: a proof, and a figure of one's own run."""


class Prober:
    """A bank that charges and voids as often as it likes, and keeps every answer and every entry of its own."""

    def __init__(self, world: ServedWorld) -> None:
        """In a market where it has a contract."""
        self._world = world
        self.seen: list[str] = []

    def is_refused(self, steps: int) -> bool:
        """Whether a charge of so many steps is refused; one that is not is voided."""
        world, name = self._world, f"probe-{len(self.seen)}"
        told = self._sent(PATHS["charge"], name, "charge", self._body(steps, name))
        if told["status"] == 201:
            assert self._sent(PATHS["void"], f"{name}-void", "void", {"charge": name})["status"] == 201
        decision = world.http.get(f"/v1/decisions/{name}", headers=world.everybody.shown(BANK_A)).json()
        self.seen[-1] += json.dumps([decision["checks"], decision["detail"]])
        return bool(told["status"] != 201)

    def quoted(self, steps: int) -> int:
        """The status of a quote of so many steps."""
        return int(self._sent(QUOTES, "quoted", "charge", self._body(steps, "quoted"))["status"])

    def most(self) -> int:
        """The most steps that are admitted, by bisection."""
        return bisect_left(range(1, STEPS_MOST), x=True, key=self.is_refused)

    def _body(self, steps: int, name: str) -> c.Object:
        return {
            **self._world.charge_body(self._world.contracts[BANK_A], CleanRoom(name)),
            "plan": plan(noise="4", steps=steps),
        }

    def _sent(self, path: str, name: str, kind: str, body: c.Object) -> dict[str, Any]:
        world, signer = self._world, self._world.signers[BANK_A]
        raw = world.command_bytes(signer, BANK_A, kind, body, name)
        answer = world.post(path, raw, world.sign(signer, path, raw, name))
        told = {member: value for member, value in answer.json().items() if member not in SEALS}
        self.seen.append(VARYING.sub("", json.dumps(told)))
        return {**told, "status": answer.status_code}


def _probed(folder: Path, steps: int, how: str, *, together: bool = False) -> tuple[int, list[str], int]:
    """What a prober finds and sees beside a competitor's run; and what a quote says of one step more."""
    with market(folder, epsilon="0.8", shared_accounts=how) as world:
        if together:
            coalition: c.Object = {"epsilon": "0.7", "members": [BANK_A, BANK_B]}
            world.service.submit(world.signers[SRO], SRO, "coalition", coalition, "together")
        charge(world, BANK_A, 10, "own")
        charge(world, BANK_B, steps, "theirs")
        prober = Prober(world)
        most = prober.most()
        quoted = [prober.quoted(one) for one in (most, most + 1)]
        assert quoted[0] == 200
        charge(world, BANK_A, most, "fitting")
        return most, prober.seen, quoted[1]


@pytest.mark.parametrize("together", [False, True], ids=["everyone", "coalition"])
def test_charges_that_are_made_and_voided_find_the_rounded_part_alone(tmp_path: Path, together: bool) -> None:  # noqa: FBT001 - a table's column
    """Every answer, entry and decision is the same beside either run, and a quote says what the charge is told."""
    found = [_probed(tmp_path / str(steps), steps, "rounded_decisions", together=together) for steps in THEIRS]
    assert found[0] == found[1]
    assert found[0][2] == 409


def test_where_charges_are_decided_exactly_they_find_the_sum(tmp_path: Path) -> None:
    """So this adversary can: it tells the two runs apart where the policy lets it, and finds more room."""
    exact = [_probed(tmp_path / f"{how}-{steps}", steps, how)[0] for how in ("rounded", "exact") for steps in THEIRS]
    assert exact[0] == exact[2] > exact[1] == exact[3]
    assert _probed(tmp_path / "counted", THEIRS[1], "rounded_decisions")[0] < exact[1]


def test_the_provider_is_shown_the_sum_and_the_decision(tmp_path: Path) -> None:
    """Its plan of the consumer's run fits as far as a charge does, by the part that counts rounded up."""
    with market(tmp_path, epsilon="0.8", shared_accounts="rounded_decisions") as world:
        charge(world, BANK_B, THEIRS[0], "theirs")
        most = Prober(world).most()
        headers = {**world.everybody.shown(HOSPITAL), "content-type": "application/json"}
        for steps, outcome in ((most, "pending"), (most + 1, "budget_exhausted")):
            run: c.Object = {
                "contract": world.contracts[BANK_A],
                "partitions": [next(iter(_partitions(world)))],
                "plan": plan(noise="4", steps=steps),
            }
            report = world.http.post("/v1/plans", content=c.dump(run), headers=headers).raise_for_status().json()
            assert report["decision"]["outcome"] == outcome
            (check,) = (one for one in report["decision"]["checks"] if one["source"] == "global")
            assert check["text"].endswith("the part of others counts rounded up")
            assert report["steps_most"]["steps"] == most


def _partitions(world: ServedWorld) -> list[str]:
    with world.book.read() as facts:
        return [*facts.partitions]
