"""The tables of a charge's life, on both databases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.factories.charge_tables import TABLES, ChargeTable
from tests.factories.stored import ENGINES, StoredWorld, open_world


@pytest.fixture(scope="module", params=ENGINES)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoredWorld]:
    """One book for all tables."""
    with open_world(tmp_path_factory.mktemp("book"), request.param, founded=False) as world:
        world.found()
        yield world


@pytest.mark.parametrize("table", TABLES)
def test_the_life_of_a_charge(world: StoredWorld, table: str) -> None:
    """Each row's outcome is the one its last columns say, and the accounts follow."""
    chosen = ChargeTable(world, table)
    assert chosen.run() == chosen.rows()
