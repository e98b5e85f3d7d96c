"""DEPA's COVID scenario from papers and raw files to a charge and its verification: the processor time of all of it."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from rich.console import Console

from api.demo.depa.__main__ import play


def processor_time() -> float:
    """Of this process and those that it started and that have ended (s)."""
    return sum(os.times()[:4])


pytestmark = [pytest.mark.bench, pytest.mark.benchmark(timer=processor_time)]
SCENARIO_S: Final = 180


@pytest.mark.parametrize("level", [1, 2])
def test_the_whole_scenario(benchmark: BenchmarkFixture, tmp_path: Path, level: int) -> None:
    """At most three minutes."""
    played = benchmark.pedantic(play, args=(tmp_path / "demo", Console(file=io.StringIO()), level))
    assert played.run is not None
    if benchmark.stats is not None:
        assert benchmark.stats.stats.max < SCENARIO_S
