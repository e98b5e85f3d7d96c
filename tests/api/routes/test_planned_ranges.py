"""A plan over ranges over HTTP says what one of its partitions by name says; a wrong range is refused by field."""

from __future__ import annotations

from typing import Any

from ledger.wire import canonical_json as c
from tests.factories.documents import SMALL
from tests.factories.people import BANK_A, CLINIC, HOSPITAL
from tests.factories.service import ServedWorld

DIGITS = f"{HOSPITAL}/digits"


def planned(world: ServedWorld, did: str, listed: list[c.Json], *ranges: c.Json) -> tuple[int, Any]:
    """The status and the answer."""
    named: c.Object = {"ranges": [*ranges]} if ranges else {}
    requested: c.Object = {"contract": world.contract, "partitions": listed, "plan": SMALL, **named}
    done = world.http.post("/v1/plans", json=requested, headers=world.everybody.shown(did))
    return done.status_code, done.json()


def between(first: str, last: str, dataset: str = DIGITS) -> c.Json:
    """A range."""
    return {"dataset": dataset, "first": first, "last": last}


def test_a_plan_over_a_range_is_the_one_of_its_partitions(world: ServedWorld) -> None:
    """The same decision, runs, steps and noise; what a caller names wrongly or may not see is refused by its field."""
    names = ["2026-q4", "2027-q1", "2027-q2"]
    refs = [f"{DIGITS}/{names[0]}", *map(world.open_partition, names[1:])]
    status, over = planned(world, BANK_A, [], between(names[0], names[2]))
    assert status == 200, over
    _, listed = planned(world, HOSPITAL, [*refs])
    same = ("advice", "blocked", "noise_multiplier_least", "steps_most")
    assert {name: over[name] for name in same} == {name: listed[name] for name in same}
    assert (over["decision"]["outcome"], listed["decision"]["outcome"]) == ("pending", "pending")
    assert over["runs"]["more"] == listed["runs"]["more"]
    _, mixed = planned(world, HOSPITAL, [refs[2]], between(names[0], names[1]))
    assert mixed["runs"]["more"] == over["runs"]["more"] > 0
    for ranged, code, field in (
        (between(names[2], names[0]), 422, "ranges[0]"),
        (between(names[0], "2030-q1"), 404, "ranges[0].last"),
        (between(names[0], names[1], f"{CLINIC}/digits"), 404, "ranges[0].first"),
    ):
        status, problem = planned(world, BANK_A, [], ranged)
        assert (status, problem["field"]) == (code, field), problem
