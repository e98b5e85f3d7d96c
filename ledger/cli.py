"""The ledger's command: ``epsilon verify``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ledger import proofs_cli

if TYPE_CHECKING:
    from ledger.gate import Gate

app = typer.Typer(pretty_exceptions_show_locals=False)

_EXAMPLES: Final = """
Examples:

  epsilon verify demo/book.sqlite

  epsilon verify demo/book.sqlite --log demo/log.vkey --kept checkpoint-of-may --json
"""
VERIFICATION_FAILED: Final = 7
_BOOK: Final = "The book: an SQLite file, or a database's URL."
GATES: Final = "epsilon.gate"
"""The group of entry points whose one member is the gate: the ledger asks for it and imports no policy."""


@app.callback()
def _group() -> None:
    """The ledger's commands."""


@app.command(epilog=_EXAMPLES)
def verify(  # noqa: PLR0913 - one argument an option
    book: Annotated[str, typer.Argument(metavar="BOOK", help=_BOOK)],
    log: Annotated[
        Path | None,
        typer.Option(help="The log's verifier key, as you kept it; log.vkey beside the book if not given."),
    ] = None,
    kept: Annotated[
        list[Path] | None,
        typer.Option(help="A checkpoint of this log that you kept: the book must extend it. May be given repeatedly."),
    ] = None,
    *,
    signatures: Annotated[
        bool, typer.Option("--signatures/--no-signatures", help="Whether to verify the signature over every entry.")
    ] = True,
    decisions: Annotated[
        bool,
        typer.Option(
            "--decisions/--no-decisions",
            help="Whether to decide every command again. Without, the book is only shown to be what its entries make "
            "it, no signature over an entry verified.",
        ),
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the finding as JSON.")] = False,
) -> None:
    """Replay a book from its first entry, re-derive every account, and check every proof and signature."""
    from rich.console import Console
    from rich.progress import Progress

    from ledger.replay import Broken, verify_book
    from ledger.verifier import Checkpoint, LogKey

    with _faults_told(book) as url:
        key = LogKey.parse(_beside(book, log).read_text(encoding="ascii").strip())
        heads = [Checkpoint.open(path.read_text(encoding="utf-8"), key) for path in kept or ()]
        console = Console(stderr=True)
        with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task("replaying", total=None)

            def step(done: int, total: int) -> None:
                progress.update(task, completed=done, total=total)

            try:
                finding = verify_book(
                    url, key, step, gate=_gate(), kept=heads, signatures=signatures, decisions=decisions
                )
            except Broken as fault:
                typer.echo(json.dumps(fault.to_json()) if as_json else str(fault))
                raise typer.Exit(VERIFICATION_FAILED) from None
    typer.echo(json.dumps(finding.to_json()) if as_json else finding.in_words())


def _beside(book: str, log: Path | None) -> Path:
    if log is None and "://" in book:
        typer.echo("name the log's verifier key with --log: nothing lies beside a database's URL", err=True)
        raise typer.Exit(2)
    return log or Path(book).parent / "log.vkey"


def _gate() -> Gate | None:
    """The installed gate; None where there is none, which the finding says."""
    from importlib.metadata import entry_points

    found = list(entry_points(group=GATES))
    if len(found) > 1:
        raise ValueError(f"several gates are installed: {', '.join(sorted(one.value for one in found))}")
    gate: Gate | None = found[0].load() if found else None
    return gate


@app.command(
    epilog="""
Examples:

  epsilon log demo/book.sqlite

  epsilon log demo/book.sqlite --refused --json
"""
)
def log(
    book: Annotated[str, typer.Argument(metavar="BOOK", help=_BOOK)],
    *,
    refused: Annotated[bool, typer.Option("--refused", help="Only refusals, with every reason.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print whole entries, one JSON object a line.")] = False,
) -> None:
    """List the entries of a book: when, who, what, and what was decided."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ledger.reading import entries_of, reasons, time_in_words

    table = Table()
    for name in ("entry", "time (UTC)", "what", "id", "asked by", "outcome", *(["reasons"] if refused else [])):
        table.add_column(name, overflow="fold")
    with _faults_told(book) as url:
        for index, entry in entries_of(url):
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
def _faults_told(book: str) -> Iterator[str]:
    """The URL of a book; a fault on the way is one sentence, and shows no password."""
    from sqlalchemy.exc import DatabaseError

    from ledger.engines import name_of, url_of
    from ledger.malformed import Malformed

    if "://" not in book and not Path(book).is_file():
        typer.echo(f"there is no book at {book}", err=True)
        raise typer.Exit(4)
    try:
        yield url_of(book)
    except DatabaseError as fault:
        told = str(fault.orig).strip().partition("\n")[0] or "the database gave no reason"
        typer.echo(f"{name_of(url_of(book))} is not a book: {told}", err=True)
        raise typer.Exit(2) from None
    except (Malformed, OSError, ValueError) as fault:
        typer.echo(str(fault), err=True)
        raise typer.Exit(2) from None
