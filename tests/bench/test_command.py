"""What a help costs, in bare starts of the interpreter, side by side in one run."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

pytestmark = pytest.mark.bench

STARTS_MAX: Final = 15
ROOT: Final = Path(__file__).parents[2]
ROUNDS: Final = 15


def _cpu_s(*words: str) -> float:
    """CPU seconds of one process, which other processes on the machine hardly change."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, *words], env=environment, stdout=subprocess.DEVNULL, check=True, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("words", [("--help",), ("charge", "--help"), ("charge", "make", "--help")], ids=" ".join)
def test_help_in_bare_starts(benchmark: Any, words: tuple[str, ...]) -> None:  # noqa: ANN401 - the plugin's
    """The least of a few rounds of each, taken in turn."""
    bare, ours = [], []

    def once() -> None:
        bare.append(_cpu_s("-c", "pass"))
        ours.append(_cpu_s("-m", "epsilon_ledger", *words))

    benchmark.pedantic(once, rounds=ROUNDS, warmup_rounds=1)
    starts = min(ours) / min(bare)
    benchmark.extra_info["starts"] = round(starts, 1)
    benchmark.extra_info["starts_max"] = STARTS_MAX
    assert starts <= STARTS_MAX
