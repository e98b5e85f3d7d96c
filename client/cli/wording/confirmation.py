"""Prompts at a terminal: before what cannot be undone (elsewhere `--yes`), and for options without a default."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from ledger.command_line.printable_text import say


def confirm(question: str, refused: str, *, required: str) -> None:
    """Prompt at a terminal.

    Args:
        refused: what is reported if the answer is no.
        required: why --yes is needed where there is no terminal; empty if it is not.

    Raises:
        Malformed: unless a person says yes, or nothing is required and there is no terminal.
    """
    from ledger.wire.malformed import Malformed

    if sys.stdin.isatty():
        # Not the library's own prompt, which would put a blank on stdout.
        say(f"{question} [y/N] ", nl=False, err=True)
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            raise Malformed("--yes", refused)
    elif required:
        raise Malformed("--yes", f"is required without a terminal: {required}")


def ask_missing(given: Mapping[str, str], meanings: Mapping[str, str]) -> dict[str, str]:
    """Each option's value: as given or, at a terminal, as a person answers.

    Args:
        given: by option, as ``--origin``, its value; empty if it was left out.
        meanings: by option, what it decides, for people.

    Raises:
        Malformed: naming the first missing option, and all others, where there is no terminal or no answer.
    """
    from ledger.wire.malformed import Malformed

    missing = [name for name, value in given.items() if not value]
    values = dict(given)
    if missing and not sys.stdin.isatty():
        others = f"; so {'is' if len(missing) == 2 else 'are'} {', '.join(missing[1:])}" if missing[1:] else ""
        raise Malformed(missing[0], f"is missing ({meanings[missing[0]]}){others}")
    for name in missing:
        # Not the library's own prompt, which would put a blank on stdout.
        say(f"{name[2:]}: {meanings[name]}\n> ", nl=False, err=True)
        values[name] = sys.stdin.readline().strip()
        if not values[name]:
            raise Malformed(name, f"is missing ({meanings[name]})")
    return values
