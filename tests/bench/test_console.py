"""Pages of the console over a book of a hundred thousand entries: how long the service takes for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tests.api.console.test_statements import GROWN, last_time
from tests.api.console.visitors import PEOPLE, browser, log_in
from tests.bench.grown import grown
from tests.factories.people import LOG_KEY, Clock
from tests.factories.service import open_world
from tests.factories.stored import copy

pytestmark = pytest.mark.bench

ENTRIES: Final = 100_000
ROUNDS: Final = 7


@pytest.fixture(scope="module")
def regulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """The regulator's browser, on one connection: a page's time is the service's, and that of a request on loopback."""
    folder: Path = tmp_path_factory.mktemp("console")
    book = copy(grown(ENTRIES), folder / "book.sqlite")
    clock = Clock(last_time(book))
    with (
        open_world(folder, clock=clock, log_key=LOG_KEY, database=f"sqlite:///{book}") as world,
        world.issuing({"sro": PEOPLE["SRO"]}) as issuer,
        browser(world.url) as http,
    ):
        log_in(http, issuer, "sro")
        yield http


@pytest.mark.parametrize("path", GROWN)
def test_a_page_of_a_long_book(benchmark: BenchmarkFixture, regulator: httpx.Client, path: str) -> None:
    """Aim: 150 ms. The first answer of a page, which reads its template, is not timed."""
    answer = benchmark.pedantic(regulator.get, args=(f"/console{path}",), rounds=ROUNDS, warmup_rounds=1)
    assert (answer.status_code, "</main>" in answer.text) == (200, True)
