"""Text as a terminal may show it: what it names was registered or written by others, escapes included."""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any, Final

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


def printable_json(text: str) -> str:
    """JSON of the same value, in which what is not printed is escaped; the ends of its lines stay."""
    if _CERTAIN.match(text):
        return text
    # Outside its strings JSON has no such character.
    return "".join(one if one == _LINE or _is_printed(one) else json.dumps(f"{one}")[1:-1] for one in text)


def json_text(value: object, **form: Any) -> str:  # noqa: ANN401 - as json.dumps takes it
    """A value as JSON that a terminal may show."""
    return printable_json(json.dumps(value, **form))


def say(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Print a text, on stderr if ``err``; without the line's end unless ``nl``."""
    typer.echo(printable_lines(text), nl=nl, err=err)


def _is_printed(character: str) -> bool:
    # Controls, marks of direction and halves of pairs are not; a space of another width is.
    return character.isprintable() or unicodedata.category(character) == _SPACE
