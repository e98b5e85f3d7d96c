"""SVG as text: elements whose every attribute and word is escaped, and the scales of axes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup, escape

WIDTH: Final = 960
HEIGHT: Final = 320
LEFT: Final = 64
RIGHT: Final = 24
TOP: Final = 24
BOTTOM: Final = 44
_STEPS: Final = (1, 2, 5)


def element(name: str, words: str | Markup = "", /, **attributes: object) -> Markup:
    """One element; ``class_`` is its class, and an underscore in a name is a hyphen."""
    # Not by Markup's own format, of which a chart of hundreds of points would take a tenth of a second.
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(attribute))}"' for key, attribute in attributes.items()
    )
    return Markup(f"<{name}{given}>{escape(words)}</{name}>")  # noqa: S704 - each part is escaped


def _number(value: object) -> object:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value


def drawing(title: str, parts: Iterable[Markup], *, width: int = WIDTH, height: int = HEIGHT) -> Markup:
    """A whole picture; its title is what a screen reader says of it, and its table has the numbers."""
    inside = element("title", title) + Markup().join(parts)
    return element("svg", inside, viewBox=f"0 0 {width} {height}", role="img", aria_label=title)


def label(words: str, x: float, y: float, anchor: str = "start", class_: str = "") -> Markup:
    """Words at a place."""
    return element("text", escape(words), x=float(x), y=float(y), text_anchor=anchor, class_=class_)


def path(points: Iterable[tuple[float, float]], class_: str, *, closed: bool = False) -> Markup:
    """A line through points."""
    text = " ".join(f"{'M' if place == 0 else 'L'}{x:.1f} {y:.1f}" for place, (x, y) in enumerate(points))
    return element("path", d=text + (" Z" if closed else ""), class_=class_)


@dataclass(frozen=True, slots=True)
class Scale:
    """From numbers to places along one axis."""

    least: float
    most: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The place of a number; one beyond the end is at the end."""
        span = self.most - self.least or 1.0
        part = min(1.0, max(0.0, (value - self.least) / span))
        return self.start + part * (self.end - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        """Round numbers along the axis."""
        span = self.most - self.least
        if span <= 0:
            return [self.least]
        size = 1.0
        while size * about > span:
            size /= 10
        while size * 10 * about <= span:
            size *= 10
        step = next((size * factor for factor in (*_STEPS, 10) if span / (size * factor) <= about), size * 10)
        first = -(-self.least // step) * step
        return [first + place * step for place in range(int((self.most - first) / step + 1e-9) + 1)]


def vertical_axis(scale: Scale, words: str, right: float = WIDTH - RIGHT) -> list[Markup]:
    """Grid lines with their numbers, and what they are."""
    marks = [label(words, 8, TOP - 8, class_="soft")]
    for tick in scale.ticks():
        y = scale(tick)
        marks.append(element("line", x1=float(LEFT), x2=float(right), y1=y, y2=y, class_="grid"))
        marks.append(label(f"{tick:g}", LEFT - 8, y + 4, "end", "soft"))
    return marks
