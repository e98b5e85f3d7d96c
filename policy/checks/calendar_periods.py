"""The periods of a stream's slices in UTC: days, ISO weeks (ISO 8601, section 3.2.2) and months, by their names.

day      2026-07-31
week     2026-W31     from Monday 00:00
month    2026-07
by_hand  any name; periods of this kind have no times, and are in the order in which they were opened
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Final

DAY: Final = "day"
WEEK: Final = "week"
MONTH: Final = "month"
BY_HAND: Final = "by_hand"
PERIODS: Final = (DAY, WEEK, MONTH, BY_HAND)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FORMS: Final = {
    DAY: re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})\Z"),
    WEEK: re.compile(r"([0-9]{4})-W([0-9]{2})\Z"),
    MONTH: re.compile(r"([0-9]{4})-([0-9]{2})\Z"),
}
_KEPT: Final = 16_384
"""Names whose times are cached: the slices of long streams are read often."""
EXAMPLES: Final = {DAY: "2026-07-31", WEEK: "2026-W31", MONTH: "2026-07"}


def period_of(kind: str, moment: int) -> str:
    """The name of the period that a time (Unix ms) lies in. Raises: KeyError, for a kind without times."""
    return _name(kind, (_EPOCH + timedelta(milliseconds=moment)).date())


@lru_cache(maxsize=_KEPT)
def start_of(kind: str, name: str) -> int | None:
    """The start (Unix ms) of a period; None for a name that is not a period of this kind."""
    form = _FORMS.get(kind)
    match = form.match(name) if form else None
    if match is None:
        return None
    year, *rest = map(int, match.groups())
    try:
        first = date.fromisocalendar(year, rest[0], 1) if kind == WEEK else date(year, rest[0], (*rest, 1)[1])
    except (ValueError, OverflowError):
        return None
    return (datetime(first.year, first.month, first.day, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


def periods_from(kind: str, name: str) -> Iterator[str]:
    """A period and all later ones until the year 9999. Raises: ValueError, for a name that is not a period."""
    start = start_of(kind, name)
    if start is None:
        message = f"{name!r} is no {kind}"
        raise ValueError(message)
    first = (_EPOCH + timedelta(milliseconds=start)).date()
    while first.year < _LAST_YEAR:
        yield _name(kind, first)
        first = _after(kind, first)


def period_before(kind: str, name: str) -> str:
    """The period before another one. Raises: ValueError, for a name that is not a period."""
    start = start_of(kind, name)
    if start is None:
        message = f"{name!r} is no {kind}"
        raise ValueError(message)
    return period_of(kind, start - 1)


_LAST_YEAR: Final = 9999


def _name(kind: str, day: date) -> str:
    week = day.isocalendar()
    return {
        DAY: day.isoformat(),
        WEEK: f"{week.year:04}-W{week.week:02}",
        MONTH: f"{day.year:04}-{day.month:02}",
    }[kind]


def _after(kind: str, first: date) -> date:
    """The first day of the period after the one that begins on a day."""
    if kind == MONTH:
        return (first.replace(day=1) + timedelta(days=32)).replace(day=1)
    return first + timedelta(days=7 if kind == WEEK else 1)


@lru_cache(maxsize=_KEPT)
def span_of(name: str) -> tuple[int, int] | None:
    """The start of a period and its end, exclusive (Unix ms); None for a name that is not a period."""
    for kind in _FORMS:
        if (start := start_of(kind, name)) is not None:
            end = next((start_of(kind, after) for after in islice(periods_from(kind, name), 1, 2)), None)
            return None if end is None else (start, end)
    return None
