#!/usr/bin/env python3
"""Draws budget and accuracy over time, as SVG, of the weeks that drifting_stream.py saw.

python docs/examples/drifting_stream_picture.py FOLDER/weeks.json FOLDER/drifting_stream.svg
"""

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

LEFT, WIDTH, TOP, HEIGHT, LOWER = 84, 656, 56, 190, 312


def picture(rows: list[SimpleNamespace]) -> str:
    """Two panels over time, as SVG: the budget of each open slice, and the accuracy of both models."""
    return "\n".join([_HEAD, *_budgets(rows), *_accuracies(rows), "</svg>\n"])


def _budgets(rows: list[SimpleNamespace]) -> list[str]:
    """A row for each slice, the oldest at the bottom, with a cell for each week in which it is open."""
    names = [row.period for row in rows]
    wide, high = WIDTH / len(rows), HEIGHT / len(rows)
    parts = [_text(LEFT, TOP - 16, "Budget used of each slice, until it retires", "b")]
    for row in rows:
        for name, share in row.spent.items():
            x, y = LEFT + row.week * wide, TOP + HEIGHT - (names.index(name) + 1) * high
            size = f'width="{wide - 1:.1f}" height="{high - 1:.1f}"'
            parts.append(f'<rect class="slice" x="{x:.1f}" y="{y:.1f}" {size} fill-opacity="{_shade(share)}"/>')
    for place in _labelled(names):
        parts.append(_text(LEFT - 8, TOP + HEIGHT - (place + 0.5) * high + 4, names[place], "hint end"))
    for place, share in enumerate((0, 50, 100)):
        x = LEFT + WIDTH - 180 + 64 * place
        parts.append(
            f'<rect class="key" x="{x}" y="{TOP - 27}" width="14" height="12" fill-opacity="{_shade(share)}"/>'
        )
        parts.append(_text(x + 19, TOP - 16, f"{share} %", "hint"))
    return [*parts, *_weeks(names, TOP)]


def _accuracies(rows: list[SimpleNamespace]) -> list[str]:
    """A line for each model, with a point for each run, and an open one for each that was refused."""
    least = min((one for row in rows for one in (row.renewed, row.once) if one is not None), default=0.5)
    floor = math.floor(least * 10) / 10

    def at(week: int, share: float) -> tuple[float, float]:
        return LEFT + (week + 0.5) * WIDTH / len(rows), LOWER + (1 - share) / (1 - floor) * HEIGHT

    parts = [_text(LEFT, LOWER - 16, "Right answers in the newest week", "b")]
    for number in range(5):
        share = floor + (1 - floor) * number / 4
        y = at(0, share)[1]
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}h{WIDTH}"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{100 * share:.0f} %", "hint percent end"))
    for kind, label, x in (
        ("renewed", "renewed on the newest slices", LEFT + 330),
        ("once", "trained once", LEFT + 572),
    ):
        points = [at(row.week, getattr(row, kind)) for row in rows if getattr(row, kind) is not None]
        parts.append(f'<polyline class="{kind}" points="{" ".join(f"{one:.1f},{y:.1f}" for one, y in points)}"/>')
        parts.append(f'<path class="{kind}" d="M{x - 26} {LOWER - 20}h20"/>' + _text(x, LOWER - 16, label, "hint"))
    for row in rows:
        if row.renewed is not None and (row.trained or row.refused):
            x, y = at(row.week, row.renewed)
            kind = "run" if row.trained else "refused"
            parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>')
    return [*parts, *_weeks([row.period for row in rows], LOWER)]


def _weeks(names: list[str], top: int) -> list[str]:
    wide = WIDTH / len(names)
    labels = (
        _text(LEFT + (place + 0.5) * wide, top + HEIGHT + 18, names[place], "hint mid") for place in _labelled(names)
    )
    return [f'<path class="grid" d="M{LEFT} {top + HEIGHT}h{WIDTH}"/>', *labels]


def _labelled(names: list[str]) -> range:
    """The places of at most seven of them."""
    return range(0, len(names), math.ceil(len(names) / 7))


def _shade(share: float) -> str:
    """The opacity of a share in per cent: something of an unused slice is seen too."""
    return f"{0.08 + 0.0092 * share:.3f}"


def _text(x: float, y: float, words: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{words}</text>'


_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 530" font-family="system-ui, sans-serif" font-size="14" role="img" aria-labelledby="t d">
<title id="t">Budget and accuracy on a drifting stream</title>
<desc id="d">Above, a row of weeks for each slice until it retires, darker as its budget is used; below, the accuracy of a model that is renewed on the newest slices, and of one that was trained once.</desc>
<style>text{fill:#223} .b{font-weight:600} .hint{fill:#556;font-size:12px} .end{text-anchor:end} .mid{text-anchor:middle} path,polyline{fill:none} .grid{stroke:#dde} .slice,.key{fill:#2b4fa3} .renewed{stroke:#2c7a4b;stroke-width:2.4} .once{stroke:#b4532a;stroke-width:2.4;stroke-dasharray:6 4} .run{fill:#2c7a4b} .refused{fill:#fbfbfd;stroke:#2c7a4b;stroke-width:1.6}</style>
<rect width="760" height="530" fill="#fbfbfd"/>"""


def draw(weeks: Path, target: Path) -> None:
    """Draw what one file says into another."""
    rows = [SimpleNamespace(**row) for row in json.loads(weeks.read_text(encoding="utf-8"))]
    target.write_text(picture(rows), encoding="utf-8")


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]))
