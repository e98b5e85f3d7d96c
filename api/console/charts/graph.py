"""A graph in layers: each vertex below all that it comes from, arrows downwards, cut ones broken."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from textwrap import wrap
from typing import Final, NamedTuple

from markupsafe import Markup

from api.console.charts.svg import WIDTH, drawing, element, label

_ROW: Final = 116
_BOX_HEIGHT: Final = 62
_LINE: Final = 16
_GAP: Final = 16
_LETTER: Final = 7.2
"""The width of a letter at the size of labels, about."""
VERTICES_MAX: Final = 60
"""More are in the table alone."""


class Vertex(NamedTuple):
    """A vertex by its number, with its words and since when; ``chosen`` is the one that the page is about."""

    number: int
    words: str
    chosen: bool
    since: str = ""


class Edge(NamedTuple):
    """An arrow from one vertex to another; ``cut``: it brings only what was known before an entry."""

    start: int
    end: int
    cut: bool


def layered(vertices: Sequence[Vertex], edges: Sequence[Edge]) -> Markup | None:
    """The picture; None where there are no arrows, or too many vertices."""
    if not edges or len(vertices) > VERTICES_MAX:
        return None
    rows = _rows(vertices, edges)
    places: dict[int, tuple[float, float]] = {}
    parts = list[Markup]()
    for depth, row in enumerate(rows):
        wide = (WIDTH - _GAP) / len(row)
        for place, vertex in enumerate(row):
            x, y = _GAP / 2 + wide * (place + 0.5), 10 + depth * _ROW
            places[vertex.number] = x, y
            width = min(wide - _GAP, 220)
            parts += _box(vertex, x, y, width)
    arrows = [_arrow(places[edge.start], places[edge.end], cut=edge.cut) for edge in edges]
    marker = element("path", d="M0 0 8 4 0 8z", class_="soft")
    head = element(
        "marker",
        marker,
        id="end",
        viewBox="0 0 8 8",
        refX="7",
        refY="4",
        markerWidth="8",
        markerHeight="8",
        orient="auto",
    )
    words = f"{len(vertices)} nodes and {len(edges)} arrows; the table below says the same in words"
    return drawing(words, [element("defs", head), *arrows, *parts], height=20 + (len(rows) - 1) * _ROW + _BOX_HEIGHT)


def _rows(vertices: Sequence[Vertex], edges: Sequence[Edge]) -> list[list[Vertex]]:
    """Each vertex one row below the lowest that it comes from; arrows lead from older vertices to newer ones."""
    depth: dict[int, int] = defaultdict(int)
    for _ in range(len(vertices)):
        changed = False
        for edge in edges:
            if depth[edge.end] <= depth[edge.start] < len(vertices):
                depth[edge.end], changed = depth[edge.start] + 1, True
        if not changed:
            break
    rows: dict[int, list[Vertex]] = defaultdict(list)
    for vertex in vertices:
        rows[depth[vertex.number]].append(vertex)
    return [rows[place] for place in sorted(rows)]


def _box(vertex: Vertex, x: float, y: float, width: float) -> list[Markup]:
    title = element("title", f"{vertex.words}, since {vertex.since}" if vertex.since else vertex.words)
    kind = "node chosen" if vertex.chosen else "node"
    box = element("rect", title, x=x - width / 2, y=y, width=width, height=_BOX_HEIGHT, rx=5, class_=kind)
    lines = _lines(vertex.words, max(3, int(width / _LETTER)))
    written = [*((words, "") for words in lines), (vertex.since, "soft")]
    top = y + (_BOX_HEIGHT - len(written) * _LINE) / 2 + 12
    return [box, *(label(words, x, top + place * _LINE, "middle", soft) for place, (words, soft) in enumerate(written))]


def _lines(words: str, letters: int) -> list[str]:
    """Words on two lines at most, the rest cut."""
    if len(words) <= letters:
        return [words]
    lines = wrap(words, letters)
    rest = " ".join(lines[1:])
    return [lines[0], rest if len(rest) <= letters else f"{rest[: letters - 1]}…"]


def _arrow(start: tuple[float, float], end: tuple[float, float], *, cut: bool) -> Markup:
    (x1, y1), (x2, y2) = start, end
    y1, y2 = y1 + _BOX_HEIGHT, y2 - 3
    middle = (y1 + y2) / 2
    line = f"M{x1:.1f} {y1:.1f} C{x1:.1f} {middle:.1f} {x2:.1f} {middle:.1f} {x2:.1f} {y2:.1f}"
    return element("path", d=line, class_="arrow cut" if cut else "arrow", marker_end="url(#end)")
