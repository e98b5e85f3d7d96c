"""Partitions over time: a bar each from its opening to its close, open or not, with how much is used, and today."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from markupsafe import Markup

from api.console.charts.svg import TOP, WIDTH, Scale, drawing, element, label, path

_ROW: Final = 24
_BAR: Final = 14
_LEFT: Final = 190.0
_END: Final = WIDTH - 150.0
"""Right of it are the words."""
_NAME_LETTERS: Final = 24
_WORDS_LETTERS: Final = 22
_AHEAD: Final = 0.08
"""So much of the time until now is drawn beyond it, for bars without a close."""
_DAY_MS: Final = 86_400_000


class Bar(NamedTuple):
    """One partition.

    Attributes:
        opened: Unix milliseconds; ``closes``, too, None where it has no close.
        live: it takes runs.
        words: beside its bar.
        title: shown on hover.
    """

    name: str
    opened: int
    closes: int | None
    live: bool
    words: str
    title: str


def strip(bars: Sequence[Bar], now: int) -> Markup | None:
    """The picture, a row each; None where there is none to draw."""
    if not bars:
        return None
    first = min(bar.opened for bar in bars)
    last = max(now, *(bar.closes or bar.opened for bar in bars), first + _DAY_MS)
    last += round((last - first) * _AHEAD)
    across = Scale(first, last, _LEFT, _END)
    bottom = TOP + 4 + len(bars) * _ROW
    parts = [part for place, bar in enumerate(bars) for part in _row(bar, TOP + 4 + place * _ROW, across)]
    today = across(now)
    parts += [
        element("line", x1=today, x2=today, y1=float(TOP - 4), y2=float(bottom), class_="today"),
        label("now", today, TOP - 10, "middle"),
        element("line", x1=_LEFT, x2=_END, y1=float(bottom), y2=float(bottom), class_="axis"),
        label(_day(first), _LEFT, bottom + 18, class_="soft"),
        label(_day(last), _END, bottom + 18, "end", "soft"),
    ]
    live = sum(bar.live for bar in bars)
    words = f"{len(bars)} partitions from their opening to their close, {live} of them open; the table has the dates"
    return drawing(words, parts, height=bottom + 26)


def _row(bar: Bar, y: float, across: Scale) -> list[Markup]:
    """A name, a bar and its words. One without a close ends in an arrow; one that takes no run is an outline."""
    start = across(bar.opened)
    end = _END if bar.closes is None else max(start + 3, across(bar.closes))
    middle, tip = y + _BAR / 2, _BAR / 2
    outline = [(start, y), (end, y), (end, y + _BAR), (start, y + _BAR)]
    if bar.closes is None:
        outline = [(start, y), (end - tip, y), (end, middle), (end - tip, y + _BAR), (start, y + _BAR)]
    shape = element("g", element("title", bar.title) + path(outline, "bar live" if bar.live else "bar", closed=True))
    name = label(_cut(bar.name, _NAME_LETTERS), _LEFT - 10, y + _BAR - 3, "end")
    return [name, shape, label(_cut(bar.words, _WORDS_LETTERS), _END + 10, y + _BAR - 3, class_="soft")]


def _cut(words: str, most: int) -> str:
    return words if len(words) <= most else f"{words[: most - 1]}…"


def _day(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d")
