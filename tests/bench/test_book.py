"""The book against the disk it writes to, against the cryptography it cannot do without, and against itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from ledger.book.book import Submission
from ledger.domain.facts import GLOBAL, Account
from tests.bench.compare import Side, compare, nothing
from tests.factories.documents import PARTITION, plan
from tests.factories.stored import StoredWorld, open_world

pytestmark = pytest.mark.bench

TINY: Final = plan(1, "1000")
"""A run of which tens of thousands fit."""
FEW, MANY = 500, 5_000
WORN_IN: Final = 1_500
"""Commits after which the write-ahead log has its full size and is written over."""
Groups = list[list[Submission]]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoredWorld]:
    """A book of 500 entries."""
    with open_world(tmp_path_factory.mktemp("small")) as world:
        yield _grown(world, FEW)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoredWorld]:
    """A book of ten times as many."""
    with open_world(tmp_path_factory.mktemp("large")) as world:
        yield _grown(world, MANY)


def _grown(world: StoredWorld, size: int) -> StoredWorld:
    names = [f"charge-{number}" for number in range(size - world.size)]
    for start in range(0, len(names), 256):
        outcomes = world.submit(*(world.charge(name, run=TINY) for name in names[start : start + 256]))
        assert {one.code.word for one in outcomes} == {"pending"}, outcomes[0]
    assert world.size == size
    return world


@pytest.mark.parametrize(
    ("threads", "group", "charges"), [(1, 1, 64), (32, 1, 512), (8, 16, 512)], ids=["one-by-one", "threads", "groups"]
)
def test_charges(benchmark: BenchmarkFixture, tmp_path: Path, threads: int, group: int, charges: int) -> None:
    """Charges through the book, against as many bare commits of an entry's bytes to the same file system."""
    with (
        open_world(tmp_path) as world,
        ThreadPoolExecutor(threads) as pool,
        closing(sqlite3.connect(tmp_path / "bare.sqlite", isolation_level=None)) as bare,
    ):
        size = _bare_table(bare, _grown(world, 11))
        _commits(bare, WORN_IN, size)
        fresh = (f"fresh-{number}" for number in count())

        def made() -> Groups:
            return [[world.charge(next(fresh), run=TINY) for _ in range(group)] for _ in range(charges // group)]

        def submit(groups: Groups) -> None:
            for outcomes in pool.map(lambda group: world.submit(*group), groups):
                assert all(one.code.word == "pending" for one in outcomes), outcomes

        how = f"{threads} thread{'s' * (threads > 1)}, {group} at a time"
        compare(
            benchmark,
            Side(f"charge, {how}", charges, made, submit),
            Side("bare durable commit", charges, nothing, lambda _: _commits(bare, charges, size)),
        )
        assert bare.execute("SELECT count(*) FROM bare").fetchone() == (WORN_IN + world.size - 11,)


def _bare_table(bare: sqlite3.Connection, world: StoredWorld) -> int:
    """A table as durable as the book; how long an entry is."""
    assert bare.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
    bare.execute("PRAGMA synchronous=FULL")
    assert bare.execute("PRAGMA synchronous").fetchone() == (2,)
    bare.execute("CREATE TABLE bare (position INTEGER PRIMARY KEY, data BLOB) STRICT")
    with world.book.read() as facts:
        return len(facts.entry(facts.size - 1))


def _commits(bare: sqlite3.Connection, how_many: int, size: int) -> None:
    for _ in range(how_many):
        bare.execute("BEGIN IMMEDIATE")
        bare.execute("INSERT INTO bare (data) VALUES (zeroblob(?))", (size,))
        bare.execute("COMMIT")


def test_reading_an_account_of_a_longer_log(
    benchmark: BenchmarkFixture, small: StoredWorld, large: StoredWorld
) -> None:
    """Reading an account costs about the same when the log is ten times as long."""
    reads = 200
    compare(
        benchmark,
        Side(f"account read, {MANY} entries", reads, nothing, lambda _: _read(large, reads)),
        Side(f"account read, {FEW} entries", reads, nothing, lambda _: _read(small, reads)),
        rounds=15,
    )
    few, many = (next(_accounts(world, 1)).pending.finite for world in (small, large))
    assert [unit * (MANY - 10) for unit in few] == [unit * (FEW - 10) for unit in many]


def _read(world: StoredWorld, times: int) -> None:
    assert len(list(_accounts(world, times))) == times


def _accounts(world: StoredWorld, times: int) -> Iterator[Account]:
    for _ in range(times):
        with world.book.read() as facts:
            yield facts.accounts[PARTITION, GLOBAL]
