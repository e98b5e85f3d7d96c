"""Cells of tables: what a person reads, the exact value behind it, and where it leads.

A loss is rounded up and a limit down, to four significant digits; the exact number is shown on hover and in the CSV.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import Final

from ledger.wire.exact_numbers import format_number

DIGITS: Final = 4
"""Significant digits of a number that people read."""
_DIGEST_SHOWN: Final = 12
NONE: Final = "none"


@dataclass(frozen=True, slots=True)
class Cell:
    """One value.

    Attributes:
        text: what people read.
        kind: how it is shown: ``text``, ``number``, ``time``, ``digest``, ``mark`` or ``share``.
        exact: what the CSV holds and hovering shows, where it is not the text itself.
        href: a page of the console; empty for none.
        passed: of a mark, whether the check passed.
        percent: of a share, how full from 0 to 100; None where it has no bound.
        source: in a report, the file and the field that hold the exact value, as a list in JSON; empty for none.
    """

    text: str
    kind: str = "text"
    exact: str = ""
    href: str = ""
    passed: bool = True
    percent: int | None = None
    source: str = ""

    @property
    def value(self) -> str:
        """The exact value."""
        return self.exact or self.text


def text(value: object, href: str = "") -> Cell:
    """Words, a name or an id."""
    return Cell(str(value), href=href)


def count(value: int | None, href: str = "") -> Cell:
    """A whole number; a dash where there is none."""
    return Cell("–" if value is None else str(value), "number", href=href)


def loss(value: Fraction | str | None, href: str = "") -> Cell:
    """A privacy loss, rounded up; ``infinite`` where no bound is proven."""
    return Cell("infinite", "number") if value is None else _number(value, up=True, href=href)


def bound(value: Fraction | str | None) -> Cell:
    """A limit on a loss, rounded down; ``none`` where there is none."""
    return Cell(NONE, "number") if value is None else _number(value, up=False)


def _number(value: Fraction | str, *, up: bool, href: str = "") -> Cell:
    number = value if isinstance(value, Fraction) else Fraction(value)
    return Cell(rounded(number, up=up), "number", format_number(number), href)


def rounded(number: Fraction, *, up: bool) -> str:
    """A non-negative number to four significant digits, without trailing zeros."""
    if number <= 0:
        return "0"
    places, scaled = 0, number
    while scaled < 10 ** (DIGITS - 1):
        scaled, places = scaled * 10, places + 1
    whole = -(-scaled.numerator // scaled.denominator) if up else scaled.numerator // scaled.denominator
    return format_number(Fraction(whole, 10**places))


def moment(ms: int | None) -> Cell:
    """A time in Unix milliseconds, shown in UTC."""
    if ms is None:
        return Cell("–", "text")
    try:
        time = datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return Cell(str(ms), "number")
    return Cell(time.strftime("%Y-%m-%d %H:%M UTC"), "time", time.strftime("%Y-%m-%dT%H:%M:%SZ"))


def digest(value: str | None, href: str = "") -> Cell:
    """A digest, a key's thumbprint or another long id, shortened."""
    if value is None:
        return Cell("–", "text")
    short = value if len(value) <= _DIGEST_SHOWN + 1 else f"{value[:_DIGEST_SHOWN]}…"
    return Cell(short, "digest", value, href)


def mark(words: str, *, passed: bool) -> Cell:
    """A check that passed or failed, in words."""
    return Cell(words, "mark", passed=passed)


def share(value: Fraction | None, words: str = "", href: str = "") -> Cell:
    """A share of a capacity in percent, rounded up; ``words`` where it has no number."""
    if value is None:
        return Cell(words or "no room at all", "share", href=href)
    tenths = -((-value.numerator * 1000) // value.denominator)
    return Cell(
        f"{tenths // 10}.{tenths % 10} %", "share", format_number(value), href, percent=min(100, -(-tenths // 10))
    )
