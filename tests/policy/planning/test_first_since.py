"""The first entry at or after a time, against reading all times; and how few statements it takes."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from policy.planning.plan_report import PROBES, first_since


class Times:
    """The times of entries, which counts how often it is asked."""

    def __init__(self, times: Sequence[int]) -> None:
        self.times, self.asked = times, 0

    def __call__(self, indexes: Sequence[int]) -> dict[int, int]:
        """As a log answers."""
        assert len(indexes) <= PROBES
        self.asked += 1
        return {index: self.times[index] for index in indexes}


@given(st.lists(st.integers(0, 40), max_size=300), st.integers(-1, 41))
def test_it_is_the_first_of_all(times: list[int], since: int) -> None:
    """Among equal times the first; the size where none is so late."""
    ordered = sorted(times)
    expected = sum(time < since for time in ordered)
    assert first_since(len(ordered), Times(ordered), since) == expected


def test_of_a_million_it_takes_three_statements() -> None:
    """Wherever it lies."""
    for since in (0, 1, 499_999, 999_999, 1_000_000):
        times = Times(range(1_000_000))
        assert first_since(1_000_000, times, since) == since
        assert times.asked <= 3
