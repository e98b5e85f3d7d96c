"""The ledger's commands on a book: ``epsilon verify``, ``epsilon log``, and what takes its proofs outside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ledger.cli import proofs, state
from ledger.cli.command_errors import book_errors_reported, failure
from ledger.cli.state import AsOf
from ledger.domain.exit_codes import ExitCode

if TYPE_CHECKING:
    from ledger.domain.entries import Entry
    from ledger.domain.gate import Gate

app = typer.Typer(pretty_exceptions_show_locals=False)

_EXAMPLES: Final = """
Examples:

  epsilon verify demo/book.sqlite

  epsilon verify demo/book.sqlite --log demo/log.vkey --kept checkpoint-of-may --json
"""
GATES: Final = "epsilon.gate"
"""The group of entry points whose one member is the gate: the ledger itself imports no policy."""
_BOOK: Final = "The book: an SQLite file, or a database's URL."


@app.callback()
def _group() -> None:
    """The ledger's commands."""


@app.command(epilog=_EXAMPLES)
def verify(  # noqa: PLR0913 - one argument an option
    book: Annotated[str, typer.Argument(metavar="BOOK", help=_BOOK)],
    log: Annotated[
        Path | None,
        typer.Option(help="The file with the log's verifier key; default: log.vkey beside the book."),
    ] = None,
    kept: Annotated[
        list[Path] | None,
        typer.Option(
            help="A checkpoint of this log that you kept outside the book. The log must extend it (consistency proof); "
            "the whole book is replayed all the same. Repeatable."
        ),
    ] = None,
    *,
    signatures: Annotated[
        bool, typer.Option("--signatures/--no-signatures", help="Verify the signature of every entry.")
    ] = True,
    decisions: Annotated[
        bool,
        typer.Option(
            "--decisions/--no-decisions",
            help="Decide every command again. Without, the command only proves that the tables match the entries, "
            "and verifies no signature of an entry.",
        ),
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Replay a book from its first entry, recompute every account, and check every proof and signature."""
    from rich.console import Console
    from rich.progress import Progress

    from ledger.audit.replay import Broken, verify_book
    from ledger.cli.input_files import need_key, read_kept

    with book_errors_reported(book) as url:
        key = need_key(log, None if "://" in book else Path(book))
        heads = [read_kept(path, key) for path in kept or ()]
        console = Console(stderr=True)
        with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task("replaying", total=None)

            def step(done: int, total: int) -> None:
                progress.update(task, completed=done, total=total)

            try:
                finding = verify_book(
                    url, key, step, gate=installed_gate(), kept=heads, signatures=signatures, decisions=decisions
                )
            except Broken as fault:
                if not as_json:
                    raise failure(str(fault), ExitCode.VERIFICATION_FAILED) from None
                typer.echo(json.dumps(fault.to_json()))
                raise typer.Exit(ExitCode.VERIFICATION_FAILED) from None
        typer.echo(json.dumps(finding.to_json()) if as_json else finding.in_words())


@app.command(
    epilog="""
Examples:

  epsilon log demo/book.sqlite

  epsilon log demo/book.sqlite --refused --as-of 12 --json
"""
)
def log(
    book: Annotated[str, typer.Argument(metavar="BOOK", help=_BOOK)],
    as_of: AsOf = None,
    *,
    refused: Annotated[bool, typer.Option("--refused", help="Show refusals only, each with every reason.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print whole entries, one JSON object per line.")] = False,
) -> None:
    """List the entries of a book: time, kind, id, actor and outcome."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for name in ("entry", "time (UTC)", "what", "id", "asked by", "outcome", *(["reasons"] if refused else [])):
        table.add_column(name, overflow="fold")
    with book_errors_reported(book) as url:
        for index, entry in _first(entries_of(url), as_of):
            if refused and not entry.code.refused:
                continue
            if as_json:
                typer.echo(entry.to_bytes().decode())
                continue
            why = [Text("\n".join(_reasons(entry)))] if refused else []
            told = (str(index), _utc(entry.time), entry.kind, entry.id, entry.actor, entry.code.word)
            table.add_row(*(Text(one) for one in told), *why)
        if not as_json:
            console = Console()
            with console.capture() as told_of:
                console.print(table)
            typer.echo(told_of.get(), nl=False)


def installed_gate() -> Gate | None:
    """The gate installed beside this program; None if there is none. Raises: ValueError, if there are several."""
    found = list(entry_points(group=GATES))
    if len(found) > 1:
        raise ValueError(f"several gates are installed: {', '.join(sorted(one.value for one in found))}")
    gate: Gate | None = found[0].load() if found else None
    return gate


def entries_of(url: str) -> Iterator[tuple[int, Entry]]:
    """Every entry of a book with its index, on one snapshot. Raises: Malformed, if one cannot be read."""
    from ledger.domain.entries import Entry
    from ledger.store.engine import engine_of
    from ledger.store.snapshot import Snapshot

    engine = engine_of(url, writes=False)
    try:
        with engine.begin() as connection:
            book = Snapshot(connection)
            for index in range(book.size):
                yield index, Entry.parse(book.entry(index))
    finally:
        engine.dispose()


def _reasons(entry: Entry) -> list[str]:
    """Every check of a refusal that failed, in order."""
    checks: Any = entry.body.get("checks", [])
    return [f"{check['code']}: {check['text']}" for check in checks if not check["passed"]]


def _utc(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _first(entries: Iterator[tuple[int, Entry]], size: int | None) -> Iterator[tuple[int, Entry]]:
    """So many of the entries, or all."""
    grown = 0
    for grown, one in enumerate(entries, 1):
        if size is not None and grown > size:
            return
        yield one
    if size is not None and grown < size:
        raise failure(f"the log has {grown} entries, fewer than {size}", ExitCode.NOT_FOUND)


app.registered_commands.extend(state.app.registered_commands)
app.registered_commands.extend(proofs.app.registered_commands)
