"""Two things timed in turns, so that what else the machine does falls on both; what is told is their ratio."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Final, Generic, TypeVar

from pytest_benchmark.fixture import BenchmarkFixture

T = TypeVar("T")
S = TypeVar("S")
LINES: Final[list[str]] = []
"""What has been measured, for the end of the run."""


@dataclass(frozen=True, slots=True)
class Side(Generic[T]):
    """One of the two.

    Attributes:
        what: in words.
        operations: how many of them ``run`` does.
        setup: makes what ``run`` takes; not timed.
        run: timed.
        clock: seconds: by the wall, or of the processor.
    """

    what: str
    operations: int
    setup: Callable[[], T]
    run: Callable[[T], object]
    clock: Callable[[], float] = perf_counter

    def seconds(self, given: T) -> float:
        """How long one operation took."""
        start = self.clock()
        self.run(given)
        return (self.clock() - start) / self.operations


@dataclass(frozen=True, slots=True)
class Ratio:
    """What came of a comparison.

    Attributes:
        line: all of it, as it is told at the end of the run.
        median: of the rounds' ratios, ours over peer.
        within: whether ours took at most as many seconds as its limit says.
    """

    line: str
    median: float
    within: bool


def compare(
    benchmark: BenchmarkFixture, ours: Side[T], peer: Side[S], rounds: int = 7, *, limit: float | None = None
) -> Ratio:
    """Time both in every round, the peer first, and record the median of the rounds' ratios, ours over peer.

    Args:
        limit: the most seconds that ``ours`` may take, in the median; the caller asserts ``within``.
    """
    mine: list[float] = []
    theirs: list[float] = []

    def before() -> tuple[tuple[T], dict[str, object]]:
        theirs.append(peer.seconds(peer.setup()))
        return (ours.setup(),), {}

    def timed(given: T) -> None:
        mine.append(ours.seconds(given))

    benchmark.pedantic(timed, setup=before, rounds=rounds, warmup_rounds=1)
    ratios = [a / b for a, b in zip(mine, theirs, strict=True)][-rounds:]
    benchmark.extra_info |= {
        "ratio": statistics.median(ratios),
        "ratio_least": min(ratios),
        "ratio_most": max(ratios),
        "ours": ours.what,
        "ours_per_second": 1 / statistics.median(mine[-rounds:]),
        "peer": peer.what,
        "peer_per_second": 1 / statistics.median(theirs[-rounds:]),
    }
    reported = benchmark.extra_info
    line = (
        f"{reported['ratio']:>10.3g} x  ({reported['ratio_least']:.3g} to {reported['ratio_most']:.3g})  "
        f"{ours.what} ({reported['ours_per_second']:.4g}/s) : {peer.what} ({reported['peer_per_second']:.4g}/s)"
    )
    took = statistics.median(mine[-rounds:])
    if limit is not None:
        line += f"; {took:.3g} s of {limit:.3g} s"
    LINES.append(line)
    return Ratio(line, statistics.median(ratios), within=limit is None or took <= limit)


def nothing() -> None:
    """No setup."""
