"""Terminal output of commands: tables, and progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import typer

from ledger.command_line.printable_text import printable


def print_tables(*tables: tuple[Sequence[str], Iterable[Sequence[object]]]) -> None:
    """Print tables with column names and rows; an unknown value is an empty cell, and no cell is truncated."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    with console.capture() as printed:
        for names, rows in tables:
            table = Table()
            for name in names:
                table.add_column(name, overflow="fold")
            for row in rows:
                table.add_row(*(Text("" if cell is None else printable(str(cell))) for cell in row))
            console.print(table)
    typer.echo(printed.get(), nl=False)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on standard error, if that is a terminal; yields the function that reports each step."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def examples(command: str, *arguments: str, note: str = "") -> str:
    """The end of a command's help: example lines, each with other arguments, and a note."""
    lines = ["\nExamples:", *(f"  epsilon {command} {argument}" for argument in arguments), *([note] if note else [])]
    return "\n\n".join(lines) + "\n"
