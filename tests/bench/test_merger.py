"""A merger of two organisations with 10^5 runs each, as the writer decides it: in memory."""

from __future__ import annotations

from functools import cache
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from ledger.commands.apply import apply
from ledger.commands.decide import decide
from ledger.commands.registry import read_command
from ledger.domain.facts import GLOBAL, holder_of
from ledger.domain.memory_state import MemoryState
from tests.bench.compare import Side, compare
from tests.bench.history import HUB, History, Sent, banks, opened
from tests.factories.memory import LOG_PUBLIC, entry_of, ref_of, snapshot
from tests.factories.people import SRO

pytestmark = pytest.mark.bench

FEW, MANY = 1_000, 100_000
LIMIT_S: Final = 2.0


@cache
def _two(runs: int) -> tuple[History, Sent]:
    """Two organisations with so many runs each, and the merger of both into a third."""
    world = opened()
    parents = banks(world, 2)
    for bank in parents:
        world.lay(bank, runs)
    assert len(world.state.charges) == 2 * runs
    return world, world.sent("merger", "merger", SRO, {"organisation": HUB, "parents": [*parents]})


def _merge(runs: int, state: MemoryState) -> None:
    """Read, verify, decide and apply; the hub then knows all that the partition has lost."""
    world, sent = _two(runs)
    requested = read_command(*sent)
    decided = decide(state, requested, world.clock.now, world.index, world.gate, LOG_PUBLIC.x)
    assert decided.code.word == "permitted", decided
    apply(state, entry_of(requested, decided, world.clock.now), world.index)
    ref, hub = ref_of("q4"), holder_of(state.organisations[HUB].node)
    assert state.accounts[ref, hub].loss == state.accounts[ref, GLOBAL].loss


def _in_memory(runs: int) -> Side[MemoryState]:
    world, _ = _two(runs)
    return Side(
        f"merger of 2 organisations with {runs:,} runs each",
        1,
        lambda: snapshot(world.state),
        lambda state: _merge(runs, state),
    )


def test_in_memory(benchmark: BenchmarkFixture) -> None:
    """In 2 s, against one with a hundredth of the runs."""
    reported = compare(benchmark, _in_memory(MANY), _in_memory(FEW), rounds=5, limit=LIMIT_S)
    assert reported.within, reported.line
