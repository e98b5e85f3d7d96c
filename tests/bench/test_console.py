"""Pages of the console over 100,000 entries, and over 10,000 partitions: the processor time of the service."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from api.console.view_list import PAGES
from tests.api.console.crowded_book import crowded_book
from tests.api.console.long_book import PATHS, LongBook, served_file, served_long


def service_time() -> float:
    """Processor time (s) of this process without that of the thread that sends requests: what the service took."""
    return time.process_time() - time.thread_time()


pytestmark = [pytest.mark.bench, pytest.mark.benchmark(timer=service_time)]

ENTRIES: Final = 100_000
ROUNDS: Final = 7
SLOW: Final = {page.path for page in PAGES if page.slow}
"""Pages that answer what would be, of every partition."""
PAGE_S: Final = 2
SLOW_PAGE_S: Final = 15


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LongBook]:
    """Browsers on one connection each."""
    with served_long(ENTRIES, tmp_path_factory.mktemp("console")) as book:
        yield book


@pytest.mark.parametrize(("page", "path"), PATHS, ids=[path for _, path in PATHS])
def test_a_page_of_a_long_book(benchmark: BenchmarkFixture, long: LongBook, page: str, path: str) -> None:
    """Aim: 150 ms. The first answer of a page, which reads its template, is not timed."""
    address = f"/console{path}".format(size=long.world.size)
    answer = benchmark.pedantic(long.of(page).get, args=(address,), rounds=ROUNDS, warmup_rounds=1)
    whole = "</main>" in answer.text or page.endswith(("bytes", ".json"))
    assert (answer.status_code, whole) == (200, True)


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LongBook]:
    """One dataset with ten thousand partitions, all charged."""
    folder = tmp_path_factory.mktemp("crowded")
    with served_file(crowded_book(folder), folder) as served:
        yield served


@pytest.mark.parametrize(("page", "path"), PATHS, ids=[path for _, path in PATHS])
def test_a_page_over_ten_thousand_partitions(
    benchmark: BenchmarkFixture, crowded: LongBook, page: str, path: str
) -> None:
    """Far less than a page that reads all of them for each of its rows."""
    address = f"/console{path}".format(size=crowded.world.size)
    answer = benchmark.pedantic(crowded.of(page).get, args=(address,), rounds=3, warmup_rounds=1)
    assert answer.status_code == 200
    if benchmark.stats is not None:
        assert benchmark.stats.stats.median < (SLOW_PAGE_S if page in SLOW else PAGE_S)
