r"""Reads the page and the tables of a report for the check: every byte of the page is understood, or refused.

A number on the page may be proven and not be what people see: hidden, drawn over, or beside another one. So nothing is
taken but the elements and attributes that a report's template makes, under a style that some report had.

It needs Python 3.11 and nothing else, as ``check.py``, which it lies beside.
"""

from __future__ import annotations

import csv
import hashlib
import html
import json
import re
from pathlib import Path

STYLES = frozenset(
    {
        "1a06364d44eaf7ce2b10c1465d99be402dd5bb81b42b3d426907ca943a6885cd",
        "13016f1c6f12fb5d124ad16f2de72ac6cd2334d91f3cff4d536918ff5098dc81",
        "2dac5a878d66a835ba211c14366c9ebdda103386a34214aeb21b1a5f9f422603",
        "c45dab54a8809456a18462728ca2d3b2744d58d1abe6a8d4b17ee8f62ff4769e",
        "bbe627518757c5c9559ac2d9f7672cfc6cddb786cf4641d227f015e94f580ad2",
        "c9307ee164c502233f70fc5b913e936d0993722a2cdb0ccb7f2400b7653eb21b",
        "43cbac8f87f6eb2875cf2831877a35a4494f421d39dcf83afdb3dfb16919ae7a",
        "8a32bd4d7790aff419acd747a65b137211389cf0b0778797decc93a4abd54aee",
    }
)
"""The SHA-256 of every style that a report was written with, the newest last."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; font-src data:; img-src data:"
_DRAWN = "class|cx|cy|d|fill-opacity|height|points|r|text-anchor|width|x|x1|x2|y|y1|y2"
_SHAPES = ("circle", "g", "line", "path", "polygon", "polyline", "rect", "text")
_PLAIN = ("body", "code", "dd", "dt", "figcaption", "h1", "h2", "h3", "head", "tbody", "thead", "title", "tr", "bdi")
_ELEMENTS = {
    **dict.fromkeys(_PLAIN, ""),
    **dict.fromkeys(_SHAPES, rf'(?: (?:{_DRAWN})="[^"]*")*'),
    "a": r' href="(?:checkpoint|(?:accounts|documents|entries)/[A-Za-z0-9.-]+)"',
    "data": r' value="([^"]*)"(?: title="\1")?(?: data-source="([^"]*)")?',
    "div": r'(?: class="scroll" role="region" aria-label="[^"]*" tabindex="0")?',
    "dl": r' class="facts"',
    "figure": r' class="chart(?: narrow)?"',
    "html": r' lang="en"',
    "link": r' rel="icon" href="data:,"',
    "main": r' id="content"',
    "meta": rf' (?:charset="utf-8"|http-equiv="Content-Security-Policy" content="{_POLICY}"'
    r'|name="viewport" content="width=device-width, initial-scale=1"|name="color-scheme" content="light dark")',
    "meter": r' min="0" max="100" high="80" value="[0-9]{1,3}" aria-hidden="true"',
    "p": r'(?: class="(?:empty|lead)")?',
    "pre": r' class="command"',
    "section": r' class="(?:partition|table)"',
    "span": r' class="mark (?:failed|passed)"',
    "svg": r' viewBox="[0-9 ]+" role="img" aria-label="[^"]*"',
    "table": r'(?: class="heat")?',
    "td": r' class="(?:h[0-9]|of-[a-z]+)"',
    "th": r' scope="(?:col|row)"',
    "time": r' datetime="([^"]*)"(?: data-source="([^"]*)")?',
}
"""The elements of a report's page, each with the form of its attributes."""
_VOID = frozenset({"link", "meta"})
_VALUES = frozenset({"data", "time"})
_CELLS = _VALUES | {"bdi"}
_AROUND = frozenset(["a", "body", "dd", "div", "dl", "html", "main", "p", "section", "table", "tbody", "td", "tr"])
"""What a value may stand in: of a title, a drawing or a meter a browser shows it nowhere."""
_DOCTYPE = "<!doctype html>"
_TOKEN = re.compile(r"<style>([^<]*)</style>|<(/?)([a-z0-9]+)([^<>]*)>|([^<>]+)")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


class Changed(ValueError):  # noqa: N818 - what is the case
    """A page or a table that no report has so."""


class Page:
    """The page of a report.

    Attributes:
        found: the numbers that name a file: where each was read, its exact value, and what is shown.
        tables: the exact values of each table in rows, the first of which are its columns; None for one without rows.
    """

    def __init__(self, text: str) -> None:
        """Read it. Raises: Changed."""
        self.found: list[tuple[list[str], str, str]] = []
        self.tables: list[list[list[str]] | None] = []
        self._open: list[str] = []
        self._rows: list[list[str]] | None = None
        self._value, self._source, self._shown = "", "", ""
        at = len(_DOCTYPE)
        if not text.startswith(_DOCTYPE):
            raise Changed("report.html: is no page of a report")
        while at < len(text):
            token = _TOKEN.match(text, at)
            if token is None:
                raise Changed(f"report.html: has what no report has: {text[at : at + 80]!r}")
            self._take(*token.groups())
            at = token.end()

    def _take(self, style: str | None, end: str | None, name: str, more: str, words: str | None) -> None:
        if style is not None:
            if hashlib.sha256(style.encode()).hexdigest() not in STYLES or self._open != ["html", "head"]:
                raise Changed("report.html: has a style that no report had until now, and which may hide something")
        elif words is not None:
            self._shown += html.unescape(words)
        elif end:
            self._end(name, more)
        else:
            self._begin(name, more)

    def _begin(self, name: str, more: str) -> None:
        found = re.fullmatch(_ELEMENTS[name], more) if name in _ELEMENTS else None
        inside = name not in _VALUES or _AROUND.issuperset(self._open)
        if found is None or not inside or not _CELLS.isdisjoint(self._open):
            raise Changed(f"report.html: has what no report has: {f'<{name}{more}>'[:200]!r} in {self._open}")
        if name in _VALUES:
            self._value, self._source = (html.unescape(one or "") for one in found.groups())
        if name == "table":
            self._rows = None if more else []
        if name == "tr" and self._rows is not None:
            self._rows.append([])
        if name == "p" and "empty" in more:
            self.tables.append(None)
        if name in _CELLS or name == "th":
            self._shown = ""
        if name not in _VOID:
            self._open.append(name)

    def _end(self, name: str, more: str) -> None:
        if more or not self._open or self._open.pop() != name:
            raise Changed(f"report.html: ends {name} where it is not open")
        value = self._value if name in _VALUES else self._shown
        if name in _VALUES and self._source:
            self.found.append((_names(self._source), value, self._shown))
        if name == "table" and self._rows is not None:
            self.tables.append(self._rows)
            self._rows = None
        elif self._rows and (name == "th" or (name in _CELLS and "td" in self._open)):
            self._rows[-1].append(value)


def _names(source: str) -> list[str]:
    """A file and the way to a field of it. Raises: Changed."""
    found = json.loads(source)
    if not isinstance(found, list) or not found or not all(isinstance(one, str) for one in found):
        raise Changed(f"report.html: names no file as {source[:200]!r}")
    return found


def check_tables(page: Page, folder: Path) -> int:
    """Check that the files of tables hold what the page shows, and that none is more; how many. Raises: Changed."""
    files = {one.stem: one for one in folder.glob("tables/*")}
    opened = sorted(int(name.partition("-")[0]) for name in files if re.fullmatch("[0-9]{1,16}-units", name))
    names = [f"{place}-{name}" for place in opened for name in ("accounts", "units", "runs")]
    ordered = ["partitions", "contracts", *names, *(["odds"] if "odds" in files else [])]
    if sorted(ordered) != sorted(files) or len(ordered) != len(page.tables):
        raise Changed(f"tables: are {len(files)}, and not the {len(page.tables)} of the page")
    for place, name in enumerate(ordered):
        with files[name].open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.reader(file, strict=True))
        shown = page.tables[place]
        # A table without rows shows no columns.
        if rows[1:] if shown is None else rows != _exported(name, shown, page.tables[place + 1 :]):
            raise Changed(f"tables/{files[name].name}: is not what the page shows")
    return len(ordered)


def _exported(name: str, shown: list[list[str]], later: list[list[list[str]] | None]) -> list[list[str]]:
    """The rows of a table as its file holds them."""
    if name.endswith("-accounts") and later and later[0] is not None and len(later[0]) == len(shown):
        # The page names whose an account is, and the file has its holder, as has the table after it.
        shown = [shown[0], *([unit[0], *row[1:]] for unit, row in zip(later[0][1:], shown[1:], strict=True))]
    return [[_defused(cell) for cell in row] for row in shown]


def _defused(value: str) -> str:
    """As the files hold it: no spreadsheet takes it for a formula."""
    return f"'{value}" if value.startswith(_FORMULA) else value
