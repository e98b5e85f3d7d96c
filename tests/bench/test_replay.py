"""Replay and proofs on long logs, against the least that anybody must do with the same entries."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import sqlite3
import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from ledger.audit.replay import verify_book
from ledger.domain.gate import Gate
from ledger.store.engine import engine_of, url_of
from ledger.store.snapshot import Snapshot
from ledger.verifier import verify_receipt
from policy.decisions.gate import gate
from tests.bench.compare import LINES, Side, compare, nothing
from tests.bench.grown import grown
from tests.factories.people import LOG, LOG_KEY
from tests.factories.stored import no_step

pytestmark = pytest.mark.bench

FEW: Final = int(os.environ.get("EPSILON_BENCH_REPLAYED", "20000"))
MANY: Final = int(os.environ.get("EPSILON_BENCH_LONGEST", "100000"))
"""The length of the log in which proofs are made; 1000000 for the whole question."""
ABOUT_THE_SAME: Final = 3
"""The most that an entry of a log ten times as long may cost, in times."""


def _entries(path: Path) -> list[bytes]:
    with closing(sqlite3.connect(path)) as connection:
        return [data for (data,) in connection.execute("SELECT data FROM entry ORDER BY position")]


WITHOUT: Final[dict[str, tuple[bool, Gate | None]]] = {
    "nothing decided again": (False, None),
    "decided again": (True, None),
    "decided again, policy too": (True, gate),
}


@pytest.mark.parametrize("what", WITHOUT)
def test_replay_without_signatures(benchmark: BenchmarkFixture, what: str) -> None:
    """Every entry applied anew, every row and sum compared; against reading and hashing the same bytes."""
    decisions, judge = WITHOUT[what]
    path = grown(FEW)
    entries = _entries(path)

    def least(entries: list[bytes]) -> None:
        for data in entries:
            json.loads(data)
            hashlib.sha256(data).digest()

    with _processor_time(len(entries)) as spent:

        def ours(_: None) -> None:
            with spent():
                found = verify_book(url_of(path), LOG, no_step, gate=judge, signatures=False, decisions=decisions)
            assert found.entries == len(entries)

        floor = Side("entry read by the standard library and hashed", len(entries), lambda: entries, least)
        mine = Side(f"entry replayed, {what}, no signatures", len(entries), nothing, ours)
        compare(benchmark, mine, floor, rounds=3)


def test_replay_with_signatures(benchmark: BenchmarkFixture) -> None:
    """All that ``epsilon verify`` does, the policy included; against one signature an entry, one after the other."""
    path = grown(FEW)
    entries = _entries(path)
    signed = [(data, LOG_KEY.sign(data)) for data in entries]
    public = LOG_KEY.public_key()

    def least(signed: list[tuple[bytes, bytes]]) -> None:
        for data, signature in signed:
            json.loads(data)
            hashlib.sha256(data).digest()
            public.verify(signature, data)

    with _processor_time(len(entries)) as spent:

        def ours(_: None) -> None:
            with spent():
                assert verify_book(url_of(path), LOG, no_step, gate=gate).signatures == len(entries)

        floor = Side("entry read, hashed and one signature verified", len(entries), lambda: signed, least)
        compare(benchmark, Side("entry replayed, all of it", len(entries), nothing, ours), floor, rounds=3)


@contextmanager
def _processor_time(entries: int) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Tell what an entry took of this process and of those that worked ahead of it, whoever else used the machine."""
    taken: list[tuple[float, float]] = []

    @contextmanager
    def spent() -> Iterator[None]:
        before = [_spent(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        yield
        after = [_spent(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        taken.append((after[0] - before[0], after[1] - before[1]))

    yield spent
    here, ahead = (statistics.median(one) / entries * 1e6 for one in zip(*taken, strict=True))
    LINES.append(f"           an entry took {here:.3g} µs of this process and {ahead:.3g} µs of others")


def _spent(whose: int) -> float:
    used = resource.getrusage(whose)
    return used.ru_utime + used.ru_stime


def test_replay_of_a_longer_log(benchmark: BenchmarkFixture) -> None:
    """An entry of a log ten times as long costs about the same."""

    def replay(entries: int) -> Side[None]:
        path = grown(entries)
        return Side(
            f"entry replayed of {entries}",
            entries,
            nothing,
            lambda _: verify_book(url_of(path), LOG, no_step, signatures=False),
        )

    reported = compare(benchmark, replay(FEW), replay(FEW // 10), rounds=3)
    assert reported.median < ABOUT_THE_SAME, reported.line


def test_inclusion_proof(benchmark: BenchmarkFixture) -> None:
    """A receipt made from a long log's tables and checked; the condition is one millisecond."""
    path = grown(MANY)
    engine = engine_of(url_of(path), writes=False)
    places = [(7_919 * number) % MANY for number in range(200)]
    with engine.begin() as connection:
        entries = {place: Snapshot(connection).entry(place) for place in places}

        def proofs(_: None) -> list[str]:
            book = Snapshot(connection)
            return [book.receipt(place) for place in places]

        for place, receipt in zip(places, proofs(None), strict=True):
            assert verify_receipt(receipt, entries[place], LOG)[0] == place
        floor = Side("SHA-256 of a kilobyte, 40 times", len(places), nothing, lambda _: _hashes(40 * len(places)))
        ours = Side(f"inclusion proof of {MANY}", len(places), nothing, proofs)
        reported = compare(benchmark, ours, floor, rounds=7, limit=0.001)
        assert reported.within, reported.line
    engine.dispose()


def _hashes(count: int) -> None:
    data = bytes(1_024)
    for _ in range(count):
        hashlib.sha256(data).digest()
