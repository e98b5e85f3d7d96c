"""The trade-off of a membership attacker: how often it can be right, by how often it may be wrong."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from api.console.charts.svg import BOTTOM, HEIGHT, LEFT, TOP, Scale, drawing, element, label, path, vertical_axis

_WIDTH = 560


def tradeoff(points: Sequence[tuple[float, float]], words: str) -> Markup:
    """The picture of a bound on true positives by false positives, both from 0 to 1."""
    across, up = Scale(0, 1, LEFT, _WIDTH - 24), Scale(0, 1, HEIGHT - BOTTOM, TOP)
    parts = [
        *vertical_axis(up, "members found, at most", right=_WIDTH - 24),
        *(label(f"{tick:g}", across(tick), HEIGHT - BOTTOM + 18, "middle", "soft") for tick in across.ticks()),
        label("others taken for members", _WIDTH - 24, HEIGHT - 6, "end", "soft"),
        path([(across(0), up(0)), (across(1), up(1))], "axis cut"),
        path([(across(x), up(y)) for x, y in points], "posted"),
        element("line", x1=across(0), x2=across(1), y1=up(0), y2=up(0), class_="axis"),
        label("a guess", across(0.72), up(0.64), class_="soft"),
    ]
    return drawing(words, parts, width=_WIDTH)
