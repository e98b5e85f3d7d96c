"""One more admission after 10^2 to 10^5 of them: ours, OpenDP's privacy filter and diffprivlib's accountant.

What each promises differs; docs/benchmarks.md says how. Each figure is over ours after 10^2.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from ledger.domain.memory_state import MemoryState
from tests.bench.compare import Side, compare, nothing
from tests.bench.history import merged
from tests.bench.peers import Diffprivlib, OpenDP
from tests.factories.memory import snapshot

pytestmark = pytest.mark.bench

LEAST: Final = 100
ORGANISATIONS: Final = 63
AT_ONCE: Final = 50
INDEPENDENT: Final = 3
"""The most that an admission may cost after a longer history, in times: it is hundreds of times as long."""


def _ours(charges: int, organisations: int = ORGANISATIONS) -> Side[MemoryState]:
    """Read, verify, decide, write the entry and apply, on a state that each round begins anew."""
    world, contract = merged(charges, organisations)
    commands = [world.admission(f"more-{number}", contract) for number in range(AT_ONCE)]

    def admit(state: MemoryState) -> None:
        words = {world.answer(state, one) for one in commands}
        assert words == {"pending"}, words

    what = f"ours after {charges:,} charges of {organisations:,} organisations that merged"
    return Side(what, AT_ONCE, lambda: snapshot(world.state), admit)


@pytest.mark.parametrize("charges", [100, 1_000, 10_000, 100_000])
def test_ours_after_more_charges(benchmark: BenchmarkFixture, charges: int) -> None:
    """Independent of history."""
    reported = compare(benchmark, _ours(charges), _ours(LEAST))
    assert reported.median < INDEPENDENT, reported.line


@pytest.mark.parametrize("organisations", [630, 6_300])
def test_ours_of_a_larger_lineage(benchmark: BenchmarkFixture, organisations: int) -> None:
    """Independent of how many organisations became one, in one merger after another."""
    reported = compare(benchmark, _ours(LEAST, organisations), _ours(LEAST))
    assert reported.median < INDEPENDENT, reported.line


@cache
def _peer(name: str) -> OpenDP | Diffprivlib:
    """One for all sizes: OpenDP's takes minutes to grow."""
    return OpenDP() if name == "opendp" else Diffprivlib()


@pytest.mark.parametrize(
    ("name", "charges"),
    [
        # At 10^5 OpenDP's filter would take hours to grow to its size.
        *(("opendp", charges) for charges in (100, 1_000, 10_000)),
        *(("diffprivlib", charges) for charges in (100, 1_000, 10_000, 100_000)),
    ],
)
def test_a_peer(benchmark: BenchmarkFixture, name: str, charges: int) -> None:
    """Over ours after the fewest."""
    peer = _peer(name)
    peer.grow(charges)
    assert peer.size == charges
    compare(
        benchmark,
        Side(f"{peer.name} after {charges:,}", 1, nothing, lambda _: peer.admit()),
        _ours(LEAST),
    )
    assert charges < peer.size <= charges + 10
