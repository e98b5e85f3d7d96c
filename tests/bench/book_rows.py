"""One row of the table of the book's speed: ours over the raw driver with the same rows, in turns, in the same run."""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter


@dataclass(frozen=True, slots=True)
class Condition:
    """What a value is held to: at least, or at most."""

    least: float | None = None
    most: float | None = None

    def met(self, value: float) -> bool:
        """Whether the value keeps it."""
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    def __str__(self) -> str:
        """As the table has it."""
        least = "" if self.least is None else f">= {self.least:g}"
        return least or ("" if self.most is None else f"<= {self.most:g}")


NONE = Condition()
"""Of what is reported and held to nothing."""


def report(name: str, values: list[float], condition: Condition = NONE, unit: str = "of the floor") -> None:
    """Print one row as a JSON object: the median, the least and the most, and the load of the machine."""
    middle = statistics.median(values)
    row = {
        "name": name,
        "ratio": round(middle, 4),
        "range": [round(min(values), 4), round(max(values), 4)],
        "unit": unit,
        "load": round(os.getloadavg()[0], 2),
        "condition": str(condition) or None,
        "met": None if condition == NONE else condition.met(middle),
    }
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def seconds(run: Callable[[], object]) -> float:
    """How long it took."""
    start = perf_counter()
    run()
    return perf_counter() - start


def in_turns(
    rounds: int, ours: Callable[[], Callable[[], object]], floor: Callable[[], Callable[[], object]]
) -> list[float]:
    """By round, how fast ours is beside the floor: both are made ready untimed, then run; the first round warms up."""
    ratios = []
    for _ in range(rounds + 1):
        floored = _ready_seconds(floor)
        ratios.append(floored / _ready_seconds(ours))
    return ratios[1:]


def _ready_seconds(made: Callable[[], Callable[[], object]]) -> float:
    run = made()
    # What was made ready is searched for garbage now, and not while the time is taken.
    gc.collect()
    return seconds(run)
