"""The tables of a charge's life, on both databases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.factories.charge_tables import TABLES, ChargeTable
from tests.factories.stored import ENGINES, BookDriver, open_world


@pytest.fixture(scope="module", params=ENGINES)
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BookDriver]:
    """One book for all tables."""
    with open_world(tmp_path_factory.mktemp("book"), request.param, founded=False) as world:
        driver = BookDriver(world)
        driver.found()
        yield driver


@pytest.mark.parametrize("table", TABLES)
def test_the_life_of_a_charge(driver: BookDriver, table: str) -> None:
    """Each row's outcome is the one its last columns say, and the accounts follow."""
    ChargeTable(driver, table).run()
