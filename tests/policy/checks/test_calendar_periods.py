"""Periods of streams against a calendar that counts days one by one."""

from __future__ import annotations

from itertools import islice
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.checks.calendar_periods import DAY, MONTH, WEEK, period_before, period_of, periods_from, span_of, start_of
from tests.factories.people import DAY_MS

LENGTHS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
DAYS: Final = 400 * 365
"""Days after 1970-01-01 that are drawn: every rule of leap years happens."""


def _leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _days_of(year: int) -> int:
    return 366 if _leap(year) else 365


def _first_day(year: int) -> int:
    """The days from 1970-01-01 to the first of January of a year."""
    return sum(map(_days_of, range(1970, year)))


def _date(day: int) -> tuple[int, int, int]:
    """Year, month and day of the month, by taking years and months away."""
    year = 1970
    while day >= _days_of(year):
        day -= _days_of(year)
        year += 1
    for month, length in enumerate(LENGTHS, start=1):
        days = length + (month == 2 and _leap(year))
        if day < days:
            return year, month, day + 1
        day -= days
    raise AssertionError(day)


def _week(day: int) -> str:
    """A week belongs to the year of its Thursday, and 1970-01-01 was one (ISO 8601, section 3.2.2)."""
    thursday = day // 7 * 7 if day % 7 <= 3 else day // 7 * 7 + 7
    year = _date(thursday)[0]
    return f"{year}-W{(thursday - _first_day(year)) // 7 + 1:02}"


def _name(kind: str, day: int) -> str:
    year, month, date = _date(day)
    return {DAY: f"{year}-{month:02}-{date:02}", WEEK: _week(day), MONTH: f"{year}-{month:02}"}[kind]


@given(st.sampled_from((DAY, WEEK, MONTH)), st.integers(365, DAYS), st.integers(0, DAY_MS - 1))
def test_a_moment_lies_in_the_period_that_a_count_of_days_names(kind: str, day: int, rest: int) -> None:
    """The period has its name, its first moment and its end; the one before it ends where it begins."""
    name = period_of(kind, day * DAY_MS + rest)
    assert name == _name(kind, day)
    first, after = span_of(name) or (0, 0)
    assert start_of(kind, name) == first <= day * DAY_MS + rest < after
    days = range(first // DAY_MS, after // DAY_MS)
    assert {_name(kind, one) for one in (days[0], days[-1])} == {name}
    assert name not in {_name(kind, days[0] - 1), _name(kind, days[-1] + 1)}
    assert period_before(kind, name) == _name(kind, days[0] - 1)
    assert list(islice(periods_from(kind, name), 2)) == [name, _name(kind, days[-1] + 1)]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (DAY, "2026-02-29"),
        (DAY, "2026-2-09"),
        (DAY, "2026-02-09 "),
        (WEEK, "2025-W53"),
        (WEEK, "2026-W00"),
        (WEEK, "2026-w01"),
        (MONTH, "2026-13"),
        (MONTH, "2026-07-31"),
        (MONTH, "٢٠٢٦-07"),
        ("by_hand", "2026-07"),
    ],
)
def test_another_name_is_no_period(kind: str, name: str) -> None:
    """It has no times, and none follow it."""
    assert start_of(kind, name) is None
    with pytest.raises(ValueError, match="is no"):
        period_before(kind, name)
    with pytest.raises(ValueError, match="is no"):
        next(periods_from(kind, name))


def test_the_last_years_of_the_calendar_have_no_end() -> None:
    """A period whose end no date can say is none; and no name makes the search for it fail."""
    assert [span_of(name) for name in ("9999-01", "9999-W52", "9999-12-31", "9998-12-31x")] == [None] * 4
    first, last = span_of("2026-W53") or (0, 0)
    assert last - first == 7 * DAY_MS
    assert next(periods_from(DAY, "2026-02-28")) == "2026-02-28"
