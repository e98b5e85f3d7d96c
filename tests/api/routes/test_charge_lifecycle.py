"""The tables of a charge's life, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.factories.charge_tables import TABLES, ChargeTable
from tests.factories.http_driver import HttpDriver
from tests.factories.service import open_world


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpDriver]:
    """One service for all tables."""
    with open_world(tmp_path_factory.mktemp("service")) as world:
        driver = HttpDriver(world)
        driver.found()
        yield driver


@pytest.mark.parametrize("table", TABLES)
def test_the_life_of_a_charge(driver: HttpDriver, table: str) -> None:
    """Each row's outcome is the one its last columns say, and the accounts follow."""
    ChargeTable(driver, table, over_http=True).run()
