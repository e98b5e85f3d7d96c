"""A run's ε by δ: one number hides that each δ has an ε of its own."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import log10
from typing import Final

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

_RAISED: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def epsilon_curve(points: Sequence[tuple[Fraction, Fraction]], limit: tuple[Fraction, Fraction]) -> Markup | None:
    """The picture of (δ, ε), δ on a logarithmic axis; ``limit`` is the budget's δ and ε. None without two points."""
    if len(points) < 2:
        return None
    exponents = [log10(float(delta)) for delta, _ in points]
    across = Scale(min(exponents), max(exponents), LEFT, WIDTH - RIGHT)
    up = Scale(0, max(float(epsilon) for _, epsilon in (*points, limit)) * 1.1, HEIGHT - BOTTOM, TOP)
    drawn = sorted((across(log10(float(delta))), up(float(epsilon))) for delta, epsilon in points)
    x, y = across(log10(float(limit[0]))), up(float(limit[1]))
    parts = [
        *vertical_axis(up, "ε"),
        *(
            label(f"10{str(place).translate(_RAISED)}", across(place), HEIGHT - BOTTOM + 18, "middle", "soft")
            for place in _whole(exponents)
        ),
        label("δ", WIDTH - RIGHT, HEIGHT - 6, "end", "soft"),
        path(drawn, "posted"),
        *(element("circle", cx=float(at), cy=float(high), r=3, class_="area") for at, high in drawn),
        element("path", d=f"M{x - 6:.1f} {y:.1f} H{x + 6:.1f} M{x:.1f} {y - 6:.1f} V{y + 6:.1f}", class_="cross"),
        label("the budget", x + 9, y - 6 if y > 40 else y + 16, "start" if x < WIDTH - 140 else "end"),
    ]
    return drawing(f"ε of the run at {len(points)} values of δ; the table has the numbers", parts)


def _whole(exponents: Sequence[float]) -> range:
    return range(round(min(exponents)), round(max(exponents)) + 1)
