"""A clean room that reads a past before its own charge: what it may see is not there yet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.api.two_of_each import TwoOfEach
from tests.factories.service import open_world


@pytest.fixture
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoOfEach]:
    """Two of everything."""
    with open_world(tmp_path_factory.mktemp("past")) as world:
        world.contract = world.found_service()
        yield TwoOfEach(world)


def test_before_its_charge_it_sees_nothing_of_it(pairs: TwoOfEach) -> None:
    """At every size of the log: 404 until its charge is an entry and 200 from then on, and no error of the service."""
    world, own, shown = pairs.world, pairs.own, pairs.people["CCR"].shown
    with world.book.read() as facts:
        size, charged = facts.size, facts.charges[own.charge].index + 1
    paths = (f"/v1/contracts/{own.contract}", f"/v1/partitions/{own.partition}", f"/v1/charges/{own.charge}")
    for path in paths:
        found = [world.http.get(path, params={"as_of": str(at)}, headers=shown).status_code for at in range(1, size)]
        assert found == [404] * (charged - 1) + [200] * (size - charged), path
    for path, status in (("/v1/charges", 200), ("/v1/policies/health", 200), ("/v1/policies/health/in-force", 200)):
        answer = world.http.get(path, params={"as_of": str(charged - 1)}, headers=shown)
        assert answer.status_code == status
        assert own.charge not in answer.text
