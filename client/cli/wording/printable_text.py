"""Text of a service as a terminal may show it: what it names was registered by others, escapes included."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

import typer

_LINE: Final = "\n"
_CERTAIN: Final = re.compile(r"[ -~\n]*\Z")
_SPACE: Final = "Zs"


def printable(text: str) -> str:
    """A text of one line: a question mark for each character that is not printed, line ends included."""
    return printable_lines(text).replace(_LINE, "?")


def printable_lines(text: str) -> str:
    """A text of several lines: a question mark for each character that is not printed, such as an escape."""
    if _CERTAIN.match(text):
        return text
    return "".join(one if one == _LINE or _is_printed(one) else "?" for one in text)


def say(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Print a text, on stderr if ``err``; without the line's end unless ``nl``."""
    typer.echo(printable_lines(text), nl=nl, err=err)


def _is_printed(character: str) -> bool:
    # Controls, marks of direction and halves of pairs are not; a space of another width is.
    return character.isprintable() or unicodedata.category(character) == _SPACE
