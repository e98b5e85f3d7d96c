"""Pages of the console over a book of a hundred thousand entries: the service's processor time for each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tests.api.console.long_book import PATHS, LongBook, served_long


def service_time() -> float:
    """Processor time (s) of this process without that of the thread that sends requests: what the service took."""
    return time.process_time() - time.thread_time()


pytestmark = [pytest.mark.bench, pytest.mark.benchmark(timer=service_time)]

ENTRIES: Final = 100_000
ROUNDS: Final = 7


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
