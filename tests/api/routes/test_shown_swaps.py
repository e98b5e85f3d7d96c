"""What the advice on a refused run tells of other partitions, in place of a requested one: no more than is shown."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path
from typing import Any

import pytest

from client.http.endpoints import JSON_TYPE
from ledger.wire import canonical_json as c
from tests.api.routes.shared_market import VARYING, market
from tests.factories.documents import PARTITION, plan
from tests.factories.people import BANK_A, BANK_B, HOSPITAL, SRO, CleanRoom
from tests.factories.service import ServedWorld

TIGHT = (73, 76)
"""Runs of another that are within one step of the rounding, where there is little room."""
TIGHT_TOGETHER = (70, 73)
"""The same in the account of a coalition, and in that of all."""
STEPS_MOST = 128
"""More steps than there is room for."""


class Searcher:
    """An organisation that plans runs of Bank A as often as it likes, and keeps every answer."""

    def __init__(self, world: ServedWorld, did: str, policy: c.Object | None = None) -> None:
        """Ask under the policy in force, or another."""
        self._world, self._did = world, did
        self._policy: c.Object = {} if policy is None else {"policy": c.dump(policy).decode()}
        self.heard: list[str] = []

    def planned(self, ref: str, steps: int) -> Any:  # noqa: ANN401 - JSON
        """The whole report on a run of so many steps."""
        run: c.Object = {
            "contract": self._world.contracts[BANK_A],
            "partitions": [ref],
            "plan": plan(noise="4", steps=steps),
            **self._policy,
        }
        headers = {**self._world.everybody.shown(self._did), "content-type": JSON_TYPE}
        answer = self._world.http.post("/v1/plans", content=c.dump(run), headers=headers).raise_for_status()
        self.heard.append(VARYING.sub("", answer.text))
        return answer.json()

    def most_by_swaps(self, other: str) -> int:
        """By bisection: the most steps with which another partition is listed in place of one that is closed."""

        def untold(steps: int) -> bool:
            swaps = self.planned(PARTITION, steps)["advice"]["partitions"]
            assert swaps in ([], [{"instead": other, "of": PARTITION}])
            return not swaps

        return bisect_left(range(1, STEPS_MOST), x=True, key=untold)


def _retire_and_charge(world: ServedWorld, epsilon: str, steps: int) -> str:
    """Retire the partition, and have the other bank charge a run on another one, whose reference is given."""
    other = world.open_partition("other", epsilon=epsilon)
    world.service.submit(world.hospital, HOSPITAL, "retirement", {"partition": PARTITION}, "retired")
    body = world.charge_body(world.contracts[BANK_B], CleanRoom("theirs"))
    theirs: c.Object = {**body, "partitions": [other], "plan": plan(noise="4", steps=steps)}
    world.service.submit(world.signers[BANK_B], BANK_B, "charge", theirs, "theirs")
    return other


def _join(world: ServedWorld) -> None:
    """Have both banks be one coalition, whose cap is less than that of the other partition."""
    together: c.Object = {"epsilon": "0.8", "members": [BANK_A, BANK_B]}
    world.service.submit(world.signers[SRO], SRO, "coalition", together, "together")


@pytest.mark.parametrize("together", [False, True], ids=["global", "coalition"])
def test_no_search_by_swaps_tells_a_step_more_from_one_less(tmp_path: Path, *, together: bool) -> None:
    """Whole reports are the same whatever the other bank ran, under a policy made up too; what is listed would fit."""
    heard, exact = [], []
    for place, steps in enumerate(TIGHT_TOGETHER if together else TIGHT):
        with market(tmp_path / str(place)) as world:
            if together:
                _join(world)
            other = _retire_and_charge(world, "1" if together else "0.8", steps)
            shown = Searcher(world, BANK_A)
            assert shown.most_by_swaps(other) == shown.planned(other, 5)["steps_most"]["steps"]
            made_up = Searcher(world, BANK_A, {**world.policy(), "shared_accounts": "exact"})
            assert made_up.most_by_swaps(other) == shown.most_by_swaps(other)
            provider = Searcher(world, HOSPITAL)
            exact.append(provider.most_by_swaps(other))
            assert exact[-1] == provider.planned(other, 5)["steps_most"]["steps"]
            assert shown.most_by_swaps(other) < exact[-1]
            heard.append([*shown.heard, *made_up.heard])
    assert heard[0] == heard[1]
    assert exact[0] > exact[1]


def test_where_the_policy_shows_accounts_exactly_swaps_are_exact_too(tmp_path: Path) -> None:
    """A bank is told of as many steps as the provider."""
    with market(tmp_path, shared_accounts="exact") as world:
        other = _retire_and_charge(world, "0.8", TIGHT[0])
        found = [Searcher(world, did).most_by_swaps(other) for did in (BANK_A, HOSPITAL)]
        assert found[0] == found[1] > 0
