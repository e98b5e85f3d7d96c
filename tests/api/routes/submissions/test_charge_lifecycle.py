"""The tables of a charge's life, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.factories.charge_tables import TABLES, ChargeTable
from tests.factories.service import ServedWorld, open_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedWorld]:
    """One service for all tables."""
    with open_world(tmp_path_factory.mktemp("service")) as world:
        world.found()
        yield world


@pytest.mark.parametrize("table", TABLES)
def test_the_life_of_a_charge(world: ServedWorld, table: str) -> None:
    """Each row's outcome is the one its last columns say, and the accounts follow."""
    chosen = ChargeTable(world, table, over_http=True)
    assert chosen.run() == chosen.rows()
