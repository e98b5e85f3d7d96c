"""Every command of the program, found by walking it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import typer.main

from epsilon_ledger.__main__ import assemble


@cache
def root() -> Any:  # noqa: ANN401 - typer's own command, which has no public type
    """The assembled command."""
    return typer.main.get_command(assemble())


def walk(command: Any = None, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:  # noqa: ANN401 - as above
    """Each command and group with the words that name it, the root with none."""
    command = command or root()
    yield names, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from walk(inner, *names, name)


def leaves() -> list[tuple[tuple[str, ...], Any]]:
    """The commands that do something."""
    return [(names, one) for names, one in walk() if not hasattr(one, "commands")]


def parsed(words: list[str]) -> tuple[str, ...]:
    """Parse what stands after `epsilon`, down to the last option, without running it; the command's name.

    Raises: typer's usage errors.
    """
    command, names = root(), []
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words[0]]
        names.append(words.pop(0))
    if not words and hasattr(command, "commands"):
        return tuple(names)
    assert names or words[0].startswith("--"), words
    command.make_context(" ".join(names), words)
    return tuple(names)
