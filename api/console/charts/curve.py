"""ε by δ: the plan of one run, the bound on all runs of its partition, the run's own number and the budget, by name."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import log10
from typing import Final, NamedTuple

from markupsafe import Markup

from api.console.charts.svg import (
    BOTTOM,
    HEIGHT,
    LEFT,
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

Points = Sequence[tuple[Fraction, Fraction]]
_RAISED: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_END: Final = WIDTH - 284.0
"""Right of it is the legend."""
_GAP: Final = 10.0
"""Between the chart and the legend."""
_ROW: Final = 46.0
_LINE: Final = 14.0
"""Between two lines of the legend."""
_SIZE: Final = 5.0


class Named(NamedTuple):
    """One thing that has an ε at some δ.

    Attributes:
        points: δ and ε, as a line where there are several.
        line: the class of its line, or of its one mark.
        mark: the shape at each point: ``disc``, ``square``, ``diamond`` or ``cross``.
        words: under its name, a line up to each comma.
    """

    name: str
    words: str
    points: Points
    line: str
    mark: str


def epsilon_curves(shown: Sequence[Named]) -> Markup | None:
    """The picture, δ on a logarithmic axis; None where there is no point at a δ above 0."""
    exponents = [log10(float(delta)) for one in shown for delta, _ in one.points if delta]
    if not exponents:
        return None
    least, most = min(exponents), max(exponents)
    across = Scale(least - 0.15, most + 0.15, LEFT, _END)
    up = Scale(0, max(float(epsilon) for one in shown for _, epsilon in one.points) * 1.1, HEIGHT - BOTTOM, TOP)
    parts = [
        *vertical_axis(up, "ε", right=_END),
        *(
            label(f"10{str(place).translate(_RAISED)}", across(place), HEIGHT - BOTTOM + 18, "middle", "soft")
            for place in range(round(least), round(most) + 1)
        ),
        label("δ", _END, HEIGHT - 6, "end", "soft"),
        element("line", x1=float(LEFT), x2=_END, y1=up(0), y2=up(0), class_="axis"),
    ]
    for place, one in enumerate(shown):
        parts += _drawn(one, across, up)
        parts += _named(one, TOP + 8 + place * _ROW)
    names = "; ".join(f"{one.name}: {one.words}" for one in shown)
    return drawing(f"ε at several values of δ: {names}. The table has the numbers", parts)


def _drawn(one: Named, across: Scale, up: Scale) -> list[Markup]:
    """The line of a thing and a mark at each of its points; what holds at δ = 0 holds at every δ."""
    at = [(across(log10(float(delta))), up(float(epsilon)), delta, epsilon) for delta, epsilon in one.points if delta]
    marks = [
        _mark(one, x, y, f"{one.name}: ε {format_number(epsilon)} at δ {format_number(delta)}")
        for x, y, delta, epsilon in at
    ]
    pure = [epsilon for delta, epsilon in one.points if not delta]
    flat = [path([(LEFT, up(float(epsilon))), (_END, up(float(epsilon)))], one.line) for epsilon in pure]
    line = [path(sorted((x, y) for x, y, _, _ in at), one.line)] if len(at) > 1 else []
    return [*flat, *line, *marks]


def _mark(one: Named, x: float, y: float, words: str) -> Markup:
    """One point; hovering shows its exact numbers."""
    size, title = _SIZE, element("title", words)
    if one.mark == "disc":
        return element("circle", title, cx=x, cy=y, r=4, class_=f"mark-of {one.line}")
    outline = {
        "square": f"M{x - size:.1f} {y - size:.1f} h{2 * size} v{2 * size} h-{2 * size} Z",
        "diamond": f"M{x:.1f} {y - size:.1f} L{x + size:.1f} {y:.1f} L{x:.1f} {y + size:.1f} L{x - size:.1f} {y:.1f} Z",
        "cross": f"M{x - size:.1f} {y:.1f} h{2 * size} M{x:.1f} {y - size:.1f} v{2 * size}",
    }
    return element("path", title, d=outline[one.mark], class_=f"mark-of {one.line}")


def _named(one: Named, y: float) -> list[Markup]:
    """The name in the legend, behind its line and its mark."""
    left = _END + _GAP + 14
    several = len(one.points) > 1 or any(not delta for delta, _ in one.points)
    line = [path([(left, y), (left + 28, y)], one.line)] if several else []
    return [
        *line,
        _mark(one, left + 14, y, one.name),
        label(one.name, left + 38, y + 4),
        *(
            label(words, left + 38, y + 4 + place * _LINE, class_="soft")
            for place, words in enumerate(one.words.split(", "), 1)
        ),
    ]


def at_delta(epsilon: Fraction | None, delta: Fraction) -> str:
    """The ε at a δ in few words, rounded up."""
    value = "not proven" if epsilon is None else rounded(epsilon, up=True)
    return f"{value} at δ {format_number(delta)}"
