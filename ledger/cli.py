"""The ledger's command: ``epsilon verify``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from ledger import proofs_cli

app = typer.Typer(pretty_exceptions_show_locals=False)

_EXAMPLES: Final = """
Examples:

  epsilon verify demo/book.sqlite

  epsilon verify demo/book.sqlite --log demo/log.vkey --json
"""
VERIFICATION_FAILED: Final = 7


@app.callback()
def _group() -> None:
    """The ledger's commands."""


@app.command(epilog=_EXAMPLES)
def verify(
    book: Annotated[Path, typer.Argument(metavar="BOOK", help="The book: an SQLite file.")],
    log: Annotated[
        Path | None,
        typer.Option(help="The log's verifier key, as you kept it; log.vkey beside the book if not given."),
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print the finding as JSON.")] = False,
) -> None:
    """Replay a book from its first entry, re-derive every account, and check every proof and signature."""
    from rich.console import Console
    from rich.progress import Progress

    from ledger.engines import url_of
    from ledger.replay import Broken, verify_book
    from ledger.verifier import LogKey

    with _faults_told(book):
        key = LogKey.parse((log or book.parent / "log.vkey").read_text(encoding="ascii").strip())
        console = Console(stderr=True)
        with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task("replaying", total=None)
            try:
                finding = verify_book(
                    url_of(book),
                    key,
                    lambda done, total: progress.update(task, completed=done, total=total),
                )
            except Broken as fault:
                said = json.dumps({"entry": fault.index, "fault": str(fault), "ok": False}) if as_json else str(fault)
                typer.echo(said)
                raise typer.Exit(VERIFICATION_FAILED) from None
    typer.echo(json.dumps(finding.to_json()) if as_json else finding.in_words())


@app.command(
    epilog="""
Examples:

  epsilon log demo/book.sqlite

  epsilon log demo/book.sqlite --refused --json
"""
)
def log(
    book: Annotated[Path, typer.Argument(metavar="BOOK", help="The book: an SQLite file.")],
    *,
    refused: Annotated[bool, typer.Option("--refused", help="Only refusals, with every reason.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print whole entries, one JSON object a line.")] = False,
) -> None:
    """List the entries of a book: when, who, what, and what was decided."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ledger.engines import url_of
    from ledger.reading import entries_of, reasons, time_in_words

    table = Table()
    for name in ("entry", "time (UTC)", "what", "id", "asked by", "outcome", *(["reasons"] if refused else [])):
        table.add_column(name, overflow="fold")
    with _faults_told(book):
        for index, entry in entries_of(url_of(book)):
            if refused and not entry.code.refused:
                continue
            if as_json:
                typer.echo(entry.to_bytes().decode())
                continue
            why = [Text("\n".join(reasons(entry)))] if refused else []
            told = (str(index), time_in_words(entry.time), entry.kind, entry.id, entry.actor, entry.code.word)
            table.add_row(*(Text(one) for one in told), *why)
    if not as_json:
        Console().print(table)


app.registered_commands.extend(proofs_cli.app.registered_commands)


@contextmanager
def _faults_told(book: Path) -> Iterator[None]:
    from sqlalchemy.exc import DatabaseError

    from ledger.malformed import Malformed

    if not book.is_file():
        typer.echo(f"there is no book at {book}", err=True)
        raise typer.Exit(4)
    try:
        yield
    except DatabaseError as fault:
        typer.echo(f"{book} is not a book: {fault.orig}", err=True)
        raise typer.Exit(2) from None
    except (Malformed, OSError, ValueError) as fault:
        typer.echo(str(fault), err=True)
        raise typer.Exit(2) from None
