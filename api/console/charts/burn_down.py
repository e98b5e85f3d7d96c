"""The use of one budget over its runs: a step line of what is posted, a band of what is pending, caps as lines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Final, NamedTuple

from markupsafe import Markup

from api.console.charts.svg import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Scale,
    drawing,
    element,
    label,
    path,
    vertical_axis,
)
from api.console.frame.cells import rounded
from ledger.wire.exact_numbers import format_number

_ROOM: Final = 1.08
"""So much above the highest line."""
_LABEL_GAP: Final = 14.0
_END: Final = WIDTH - RIGHT - 150.0
"""Right of it are the names of the caps."""


class Point(NamedTuple):
    """After one run: when it was charged (ms), the ε of what is posted, and with what is pending."""

    time: int
    posted: Fraction | None
    whole: Fraction | None


def burn_down(
    points: Sequence[Point],
    caps: Sequence[tuple[str, Fraction]],
    now: int,
    forecast: Sequence[tuple[int, Fraction]] = (),
) -> Markup | None:
    """The picture until ``now`` (ms), and of a forecast's times and ε from then on; None where nothing is to draw."""
    if not points:
        return None
    shown = [point for point in points if point.posted is not None and point.whole is not None]
    ahead = [float(epsilon) for _, epsilon in forecast]
    top = max([float(cap) for _, cap in caps] + [float(point.whole or 0) for point in shown] + ahead)
    first, today = points[0].time, max(now, points[-1].time, points[0].time + 1)
    last = max([today, *(time for time, _ in forecast)])
    across = Scale(first, last, LEFT, _END)
    up = Scale(0, top * _ROOM, HEIGHT - BOTTOM, TOP)
    posted = _steps([(across(point.time), up(float(point.posted or 0))) for point in shown], up(0), across(today))
    whole = _steps([(across(point.time), up(float(point.whole or 0))) for point in shown], up(0), across(today))
    parts = [
        *vertical_axis(up, "ε at the partition's δ", right=_END),
        path([*whole, *reversed(posted)], "pending", closed=True),
        path(posted, "posted"),
        *(_hover(point, across, up) for point in shown),
        path([(across(time), up(float(epsilon))) for time, epsilon in forecast], "forecast"),
        *_caps(caps, up),
        element("line", x1=float(LEFT), x2=_END, y1=up(0), y2=up(0), class_="axis"),
        label(_day(first), LEFT, HEIGHT - BOTTOM + 20, class_="soft"),
        label(_day(last), across(last), HEIGHT - BOTTOM + 20, "end", "soft"),
    ]
    words = f"ε after each of {len(points)} runs, with what is pending as a band; " + ", ".join(
        f"{name} {rounded(cap, up=False)}" for name, cap in caps
    )
    words += "; dotted, an extrapolation" if forecast else ""
    return drawing(words, parts)


def _hover(point: Point, across: Scale, up: Scale) -> Markup:
    """A place to hover over at one run: its time, and the exact ε until then."""
    posted, whole = format_number(point.posted or Fraction(0)), format_number(point.whole or Fraction(0))
    title = element("title", f"{_day(point.time)} UTC: ε {posted} of what is posted, {whole} with what is pending")
    return element(
        "circle", title, cx=across(point.time), cy=up(float(point.posted or 0)), r=5, fill_opacity="0", class_="hover"
    )


def _steps(points: list[tuple[float, float]], bottom: float, end: float) -> list[tuple[float, float]]:
    """A line that keeps its height until the next run, and goes on to the end."""
    line: list[tuple[float, float]] = []
    before = bottom
    for x, y in points:
        line += [(x, before), (x, y)]
        before = y
    return [*line, (end, before)] if line else line


def _caps(caps: Sequence[tuple[str, Fraction]], up: Scale) -> list[Markup]:
    """Each cap as a line with its name, the names apart from one another."""
    marks, taken = list[Markup](), list[float]()
    for name, cap in sorted(caps, key=lambda pair: -pair[1]):
        y = up(float(cap))
        place = y
        while any(abs(place - label_) < _LABEL_GAP for label_ in taken):
            place += _LABEL_GAP
        taken.append(place)
        marks.append(element("line", x1=float(LEFT), x2=_END, y1=y, y2=y, class_="cap"))
        marks.append(label(f"{name} {rounded(cap, up=False)}", _END + 8, place + 4))
    return marks


def _day(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")
