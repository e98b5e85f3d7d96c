"""Several engines timed in turns, each over the first of them; and how much each holds at once.

On a CPU what counts is processor time (of all threads), which other work on the machine falls on least; on a GPU the
clock, once the device is done.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import Final

import torch
from pytest_benchmark.fixture import BenchmarkFixture
from torch.profiler import ProfilerActivity, profile

from tests.bench.compare import LINES
from tests.bench.contestants import Contestant

_MB: Final = 1e6


@dataclass
class Lane:
    """One engine's times, in seconds, and the most bytes it held in a step beyond what it held before."""

    name: str
    seconds: list[float] = field(default_factory=list)
    bytes_most: int = 0


def race(benchmark: BenchmarkFixture, what: str, contestants: Sequence[Contestant], rounds: int) -> list[Lane]:
    """Run each once a round, and tell every one's ratio to the first: median, least and most over rounds."""
    lanes = [Lane(one.name, bytes_most=held(one)) for one in contestants]

    def everyone() -> None:
        for lane, one in zip(lanes, contestants, strict=True):
            lane.seconds.append(seconds(one.step))

    benchmark.pedantic(everyone, rounds=rounds, warmup_rounds=1)
    for lane in lanes:
        lane.seconds = lane.seconds[-rounds:]
        ratios = [mine / first for mine, first in zip(lane.seconds, lanes[0].seconds, strict=True)]
        middle, took = statistics.median(ratios), statistics.median(lane.seconds)
        benchmark.extra_info[lane.name] = {"ratio": middle, "seconds": took, "bytes_most": lane.bytes_most}
        LINES.append(
            f"{middle:>10.2f} x  ({min(ratios):.2f} to {max(ratios):.2f})  {what}: {lane.name} "
            f"({took * 1e3:.4g} ms, {lane.bytes_most / _MB:.4g} MB)"
        )
    return lanes


def seconds(step: Callable[[], object]) -> float:
    """One step."""
    gpu = torch.cuda.is_available()
    clock = perf_counter if gpu else process_time
    if gpu:
        torch.cuda.synchronize()
    start = clock()
    step()
    if gpu:
        torch.cuda.synchronize()
    return clock() - start


def held(one: Contestant) -> int:
    """The most bytes of tensors alive at once in a step, beyond those alive before it; by PyTorch's own allocator."""
    one.step()
    if one.memory is not None:
        return one.memory()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        one.step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as trace:
        one.step()
    assert trace.profiler is not None
    events = [event for event in trace.profiler.kineto_results.events() if event.name() == "[memory]"]
    alive = most = 0
    for event in sorted(events, key=lambda event: int(event.start_ns())):
        alive += int(event.nbytes())
        most = max(most, alive)
    return most
