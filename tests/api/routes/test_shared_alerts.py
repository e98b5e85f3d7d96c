"""When a shared account crosses a share of its capacity: exactly for its provider, and for no competitor."""

from __future__ import annotations

import json
from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from ledger.domain.facts import GLOBAL
from ledger.filters import read_rule
from ledger.mechanisms.loss import Loss
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number
from tests.api.routes.shared_market import VARYING, charge, market, shared_account
from tests.factories.documents import PARTITION, contract, dataset, plan
from tests.factories.people import BANK_A, BANK_B, CLINIC, HOSPITAL, SRO, CleanRoom
from tests.factories.service import OPENED, ServedWorld

OWN: Final = 10
FIRST: Final = 40
LAST: Final = 4
PLANS: Final = (70, 71, 73)
"""How many steps the competitor may have planned, all runs but its last together: rounded, they are one."""
GRID: Final = 10**9


def _shares_between(world: ServedWorld) -> list[str]:
    """One share of the capacity between each plan's sum and the next one's, found from a run of known length."""
    with world.book.read() as facts:
        partition, account = facts.partitions[PARTITION], facts.accounts[PARTITION, GLOBAL]
        rule = read_rule(partition.terms)
        cap = rule.cap(partition.epsilon)
    used = [
        rule.share(Loss(tuple(one * (OWN + steps) // OWN for one in account.loss.finite), account.loss.infinite), cap)
        for steps in PLANS
    ]
    middles = [(low + high) / 2 for low, high in pairwise(used)]
    return [format_number(Fraction(round(middle * GRID), GRID)) for middle in middles]


def _watched(world: ServedWorld, **changed: c.Json) -> list[str]:
    """A run of Bank A's, and from then on a policy with alerts between the sums of the plans; their shares."""
    charge(world, BANK_A, OWN, "own")
    shares = _shares_between(world)
    world.enter("policy", {**world.policy(), **changed, "alerts": [*shares], "version": 2}, SRO, world.sro)
    return shares


def _competitor_runs(world: ServedWorld, steps: int) -> Iterable[str]:
    """Bank B's runs, one after another: the plan in two parts, and one more."""
    for name, some in (("first", FIRST), ("second", steps - FIRST), ("third", LAST)):
        charge(world, BANK_B, some, name)
        yield name


def _alerts(world: ServedWorld, did: str) -> list[Any]:
    """The alerts on everyone's account in an organisation's list and in its inbox."""
    headers = world.everybody.shown(did)
    listed = world.http.get("/v1/alerts", headers=headers).raise_for_status().json()["items"]
    waiting = world.http.get("/v1/inbox", headers=headers).raise_for_status().json()["alerts"]
    assert listed == waiting
    return [(entry["index"], one["share"]) for entry in listed for one in entry["alerts"] if one["holder"] == GLOBAL]


def _events(world: ServedWorld, did: str, after: int, until: str) -> list[Any]:
    """The events of an organisation after an entry, until its own of a given id."""
    headers = {**world.everybody.shown(did), "last-event-id": str(after)}
    found: list[Any] = []
    with world.http.stream("GET", "/v1/events", headers=headers) as response:
        for line in response.iter_lines():
            if line.startswith("data: "):
                found.append(json.loads(line.removeprefix("data: ")))
                if found[-1].get("id") == until:
                    break
    return found


def test_no_plan_is_told_from_another_by_the_times_of_alerts(tmp_path: Path) -> None:
    """A bank that notes what it is shown after each entry knows the same of three plans; the provider does not."""
    notes, exact = [], []
    for place, steps in enumerate(PLANS):
        with market(tmp_path / str(place)) as world:
            shares = _watched(world)
            start = world.size - 1
            runs = _competitor_runs(world, steps)
            noted: list[Any] = [(name, shared_account(world, BANK_A), _alerts(world, BANK_A)) for name in runs]
            exact.append([(index - start, share) for index, share in _alerts(world, HOSPITAL)])
            assert {share for _, share in exact[-1]} <= set(shares)
            world.service.submit(world.bank, BANK_A, "void", {"charge": "own"}, "own-void")
            noted.append(_events(world, BANK_A, start, "own-void"))
            notes.append(VARYING.sub("", json.dumps(noted)))
    assert notes[0] == notes[1] == notes[2]
    assert len({str(one) for one in exact}) == len(PLANS)


def test_where_the_policy_shows_the_account_exactly_alerts_are_for_all(tmp_path: Path) -> None:
    """The competitor reads what the provider reads, at the same entries."""
    with market(tmp_path) as world:
        shares = _watched(world, shared_accounts="exact")
        assert len([*_competitor_runs(world, PLANS[-1])]) == 3
        assert _alerts(world, BANK_A) == _alerts(world, HOSPITAL) != []
        assert {share for _, share in _alerts(world, BANK_A)} == set(shares)


def test_one_s_own_charge_tells_when_it_crosses(tmp_path: Path) -> None:
    """Its entry records it, and its maker has the entry."""
    with market(tmp_path) as world:
        shares = _watched(world)
        charge(world, BANK_A, PLANS[-1], "more")
        assert {share for _, share in _alerts(world, BANK_A)} == set(shares)
        assert _alerts(world, BANK_B) == []


@pytest.mark.parametrize("turned", [False, True])
def test_each_provider_of_a_range_gets_the_alert_of_its_own_partition(
    world: ServedWorld,
    turned: bool,  # noqa: FBT001 - a table's column
) -> None:
    """A charge over two hospitals' ranges records one alert for both, named by the first: each is shown its own."""
    clinic = CleanRoom("clinic").signer
    world.register(CLINIC, "TDP", clinic)
    world.enter("dataset", dataset(CLINIC), CLINIC, clinic)
    opened: c.Object = {**OPENED, "data_key": "clinic-key", "provider": CLINIC}
    world.service.submit(clinic, CLINIC, "partition", opened, "partition-clinic")
    both = [{"dataset": "digits", "provider": one} for one in (HOSPITAL, CLINIC)]
    agreed = contract(BANK_A, starts=world.begun, run={"epsilon_max": "1"}, datasets=both, tdps=[HOSPITAL, CLINIC])
    digest, _ = world.enter("contract", {**agreed, "id": "of-both"}, BANK_A, world.bank, world.hospital, clinic)
    world.enter("policy", {**world.policy(), "alerts": ["0.001"], "version": 2}, SRO, world.sro)
    name = PARTITION.rpartition("/")[2]
    providers = (CLINIC, HOSPITAL) if turned else (HOSPITAL, CLINIC)
    ranges: list[c.Json] = [{"dataset": f"{one}/digits", "first": name, "last": name} for one in providers]
    body: c.Object = {
        **world.charge_body(digest, CleanRoom("wide")),
        "partitions": [],
        "plan": plan(noise="4"),
        "ranges": ranges,
    }
    world.service.submit(world.bank, BANK_A, "charge", body, "wide")
    for did, ref in ((HOSPITAL, f"{HOSPITAL}/digits/{name}"), (CLINIC, f"{CLINIC}/digits/{name}")):
        (entry,) = world.http.get("/v1/alerts", headers=world.everybody.shown(did)).json()["items"]
        assert {one["partition"] for one in entry["alerts"]} == {ref}
        assert {one["holder"].partition(":")[0] for one in entry["alerts"]} == {GLOBAL, "lineage"}
