"""Tables: what a page shows as rows, and the same as CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import Final

from api.console.frame.cells import Cell

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a spreadsheet takes for the beginning of a formula, or of a cell that holds one."""
CSV_TYPE: Final = "text/csv; charset=utf-8"
_BYTE_ORDER_MARK: Final = "\ufeff"


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a caption.

    Attributes:
        name: in the address of its CSV and as its id on the page.
        empty: the text where there is no row; below it is the command that comes next in the reader's role.
        following: the address of the next page; empty if this is the last. ``following_words`` is what its link says.
    """

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    empty: str = "Nothing yet."
    following: str = ""
    following_words: str = "Next rows"

    def to_csv(self) -> bytes:
        """The rows with their exact values; what a spreadsheet would run is text (RFC 4180)."""
        file = io.StringIO(newline="")
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(map(defused, self.columns))
        writer.writerows([defused(cell.value) for cell in row] for row in self.rows)
        return (_BYTE_ORDER_MARK + file.getvalue()).encode()


def first_of(caption: str, count: int, most: int) -> str:
    """A caption that says how many rows there are, where only the first ``most`` are shown."""
    return caption if count <= most else f"{caption}: the first {most} of {count}"


def defused(value: str) -> str:
    """A cell that no spreadsheet takes for a formula."""
    return f"'{value}" if value.startswith(_FORMULA) else value
