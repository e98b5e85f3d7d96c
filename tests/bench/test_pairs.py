"""Durable pairs of a charge and its settlement: how many a second, how long each waits, in how long a log."""

from __future__ import annotations

import os
import resource
import shutil
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from ledger.book.book import Submission
from ledger.wire import canonical_json as c
from tests.bench.compare import LINES, Side, compare
from tests.bench.floor import Floor
from tests.bench.grown import ENDLESS, TINY, grown
from tests.factories.stored import ENGINES, StoredWorld, open_world

pytestmark = pytest.mark.bench

LENGTHS: Final = tuple(map(int, os.environ.get("EPSILON_BENCH_ENTRIES", "1000,100000").split(",")))
"""How long the logs are; ``1000,100000,1000000`` for the whole question, which takes minutes to make once."""
BATCH: Final = int(os.environ.get("EPSILON_BENCH_BATCH", "8000"))
Pair = tuple[Submission, Submission]


@pytest.mark.parametrize("clients", [1, 8, 32, 128])
@pytest.mark.parametrize("engine", ENGINES)
def test_pairs(benchmark: BenchmarkFixture, tmp_path: Path, engine: str, clients: int) -> None:
    """Clients that each send a charge, wait, settle it, wait; against the raw driver with the same group commit."""
    pairs = max(64, clients * 4)
    (tmp_path / "floor").mkdir()
    with open_world(tmp_path / "floor", engine) as other, open_world(tmp_path, engine) as world:
        floor, names, waits = Floor(other), (f"run-{number}" for number in count()), list[float]()
        with ThreadPoolExecutor(clients) as pool:

            def made() -> list[Pair]:
                chosen = [next(names) for _ in range(pairs)]
                return [(world.charge(name, run=TINY), world.settle(name, 1)) for name in chosen]

            def ours(made: list[Pair]) -> None:
                waits.extend(pool.map(lambda pair: _timed(lambda: _sent(world, pair)), made))

            compare(
                benchmark,
                Side(f"pair, {engine}, {clients} clients", pairs, made, ours),
                Side(
                    "raw driver",
                    pairs,
                    lambda: [next(names) for _ in range(pairs)],
                    lambda made: [*pool.map(floor.pair, made)],
                ),
                rounds=3,
            )
        floor.close()
        assert world.size > 2 * len(waits)
    _tell_waits(waits)


def _sent(world: StoredWorld, pair: Pair) -> None:
    for sent, word in zip(pair, ("pending", "posted"), strict=True):
        (outcome,) = world.submit(sent)
        assert outcome.code.word == word, outcome


def _timed(do: Callable[[], None]) -> float:
    start = perf_counter()
    do()
    return perf_counter() - start


def _tell_waits(waits: list[float]) -> None:
    cuts = statistics.quantiles(waits, n=100)
    LINES.append(
        f"           a pair waited {cuts[49] * 1e3:.3g} ms in the median, p99 {cuts[98] / cuts[49]:.3g} times that"
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_large_batches(benchmark: BenchmarkFixture, tmp_path: Path, engine: str) -> None:
    """Calls of thousands of charges, then of as many settlements, against the raw driver with as many rows."""
    (tmp_path / "floor").mkdir()
    with open_world(tmp_path / "floor", engine) as other, open_world(tmp_path, engine) as world:
        floor, names = Floor(other), (f"run-{number}" for number in count())

        def chosen() -> list[str]:
            return [next(names) for _ in range(BATCH)]

        def made() -> tuple[list[Submission], list[Submission]]:
            mine = chosen()
            return [world.charge(name, run=TINY) for name in mine], [world.settle(name, 1) for name in mine]

        def ours(made: tuple[list[Submission], list[Submission]]) -> None:
            for batch, word in zip(made, ("pending", "posted"), strict=True):
                assert {one.code.word for one in world.submit(*batch)} == {word}

        def theirs(made: list[str]) -> None:
            for phase in (0, 1):
                floor.batch(made, phase)

        sides = Side(f"pair, {engine}, {BATCH} a call", BATCH, made, ours), Side("raw driver", BATCH, chosen, theirs)
        compare(benchmark, *sides, rounds=2)
        floor.close()


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], StoredWorld]]:
    """Open books of different lengths, copied from those that are kept."""
    opened: list[StoredWorld] = []

    def open_one(entries: int) -> StoredWorld:
        folder = tmp_path_factory.mktemp("long")
        shutil.copy(grown(entries), folder / "book.sqlite")
        opened.append(StoredWorld(folder))
        return opened[-1]

    yield open_one
    for world in opened:
        world.book.close()


@pytest.mark.parametrize("entries", LENGTHS[1:])
def test_a_charge_in_a_longer_log(
    benchmark: BenchmarkFixture, long: Callable[[int], StoredWorld], entries: int
) -> None:
    """A charge costs in a long log what it costs in a short one, and the memory of the process does not grow."""
    names, contract = (f"fresh-{number}" for number in count()), c.digest(c.dump(ENDLESS))
    short, far, group = long(LENGTHS[0]), long(entries), 128

    def side(world: StoredWorld, size: int) -> Side[list[Submission]]:
        def made() -> list[Submission]:
            return [world.charge(next(names), run=TINY, contract=contract) for _ in range(group)]

        def submit(sent: list[Submission]) -> None:
            assert {one.code.word for one in world.submit(*sent)} == {"pending"}

        return Side(f"charge after {size} entries, {group} a call", group, made, submit)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    compare(benchmark, side(far, entries), side(short, LENGTHS[0]), rounds=15)
    grew = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    LINES.append(
        f"           memory at its highest grew by {grew / 1024:.3g} MiB over {16 * group} charges to each log"
    )
