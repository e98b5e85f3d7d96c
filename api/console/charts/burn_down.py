"""The use of one budget over its runs: a step line of what is posted, a band of what is pending, caps as lines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from fractions import Fraction
from itertools import pairwise
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
from api.console.charts.window import Window
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


def usual_window(points: Sequence[Point], now: int, forecast: Sequence[tuple[int, Fraction]] = ()) -> Window:
    """From the first of the runs, of which there is one, to now; a forecast looks as far ahead as they look back."""
    first, today = points[0].time, max(now, points[-1].time, points[0].time + 1)
    ahead = max((time for time, _ in forecast), default=today)
    return Window(first, min(ahead, 2 * today - first) if ahead > today else today)


def burn_down(
    points: Sequence[Point],
    caps: Sequence[tuple[str, Fraction]],
    now: int,
    forecast: Sequence[tuple[int, Fraction]] = (),
    window: Window | None = None,
) -> Markup | None:
    """The picture until ``now`` (ms), and of a forecast's times and ε from then on; None where nothing is to draw."""
    if not points:
        return None
    shown = [point for point in points if point.posted is not None and point.whole is not None]
    top = max([float(cap) for _, cap in caps] + [float(point.whole or 0) for point in shown]) * _ROOM
    window = window or usual_window(points, now, forecast)
    across, up = Scale(window.first, window.last, LEFT, _END), Scale(0, top, HEIGHT - BOTTOM, TOP)
    inside = [point for point in shown if window.first <= point.time <= window.last]
    earlier = [point for point in shown if point.time < window.first][-1:]
    today = across(max(now, points[-1].time))
    posted, whole = (
        _steps(
            [(across(max(point.time, window.first)), up(float(getattr(point, name)))) for point in (*earlier, *inside)],
            up(0),
            today,
        )
        for name in ("posted", "whole")
    )
    parts = [
        *vertical_axis(up, "ε at the partition's δ", right=_END),
        path([*whole, *reversed(posted)], "pending", closed=True),
        path(posted, "posted"),
        *(_hover(point, across, up) for point in inside),
        path([(across(x), up(y)) for x, y in _piece(forecast, window, top)], "forecast"),
        *_caps(caps, up),
        element("line", x1=float(LEFT), x2=_END, y1=up(0), y2=up(0), class_="axis"),
        *_dates(window, now, across),
    ]
    words = f"ε after each of {len(inside)} runs, with what is pending as a band; " + ", ".join(
        f"{name} {rounded(cap, up=False)}" for name, cap in caps
    )
    words += "; dotted, an extrapolation" if forecast else ""
    return drawing(words, parts)


def _dates(window: Window, now: int, across: Scale) -> list[Markup]:
    """Both ends of the time, and now where it lies between them."""
    y = HEIGHT - BOTTOM + 20
    marks = [
        label(_day(window.first), LEFT, y, class_="soft"),
        label(_day(window.last), _END, y, "end", "soft"),
    ]
    if window.first < now < window.last:
        x = across(now)
        marks.append(element("line", x1=x, x2=x, y1=float(TOP), y2=float(HEIGHT - BOTTOM), class_="today"))
        marks.append(label("now", x, TOP - 8, "middle", "soft"))
    return marks


def _piece(line: Sequence[tuple[int, Fraction]], window: Window, top: float) -> list[tuple[float, float]]:
    """What of a rising line lies in the window and below the top."""
    found: list[tuple[float, float]] = []
    for (x, start), (x_end, end) in pairwise(line):
        y, wide, high = float(start), max(1, x_end - x), float(end - start)
        begins = max(0.0, (window.first - x) / wide)
        ends = min(1.0, (window.last - x) / wide, (top - y) / high if high > 0 else 1.0)
        if begins < ends:
            found += [(x + part * wide, y + part * high) for part in (begins, ends)]
    return found


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
