"""What takes a log's proofs to the outside: ``epsilon publish``, ``epsilon witness`` and ``epsilon receipt``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ledger.cli.command_errors import book_errors_reported, failure
from ledger.domain.exit_codes import ExitCode

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from ledger.cli.witness_client import Witness

app = typer.Typer(pretty_exceptions_show_locals=False)

BookName = Annotated[str, typer.Argument(metavar="BOOK", help="The book: an SQLite file, or a PostgreSQL URL.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for programs instead of words.")]
_RETRY: Final = 75
_PUBLISH_EXAMPLES: Final = """
Examples:

  epsilon publish demo/book.sqlite demo/public

  epsilon publish demo/book.sqlite /srv/www/log --log demo/log.vkey
"""
_WITNESS_EXAMPLES: Final = """
Examples:

  epsilon witness demo/book.sqlite --witness witness.example/w1+a3e00fe2+BNy/co4C1Hn1p+INwJrfUlgz7W55dSZReusH/GhUhJ/G=https://witness.example

  epsilon witness demo/book.sqlite --witness "$(cat witness.txt)" --json
"""
_RECEIPT_EXAMPLES: Final = """
Examples:

  epsilon receipt demo/book.sqlite run-1 evidence

  epsilon receipt demo/book.sqlite run-1 evidence --json
"""


@app.command(epilog=_PUBLISH_EXAMPLES)
def publish(
    book: BookName,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the log is published, by any web server.")],
    log: Annotated[
        Path | None, typer.Option(help="The log's verifier key; log.vkey beside the SQLite file if not given.")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Write the log as static files (C2SP tlog-tiles): its checkpoint, every hash, every entry."""
    from rich.console import Console
    from rich.progress import Progress

    from ledger.cli import tile_publishing
    from ledger.cli.input_files import need_key
    from ledger.store.snapshot import Log

    with _opened(book, writes=False) as engine, engine.begin() as connection:
        key = need_key(log, None if "://" in book else Path(book))
        console = Console(stderr=True)
        with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task("publishing", total=None)
            done = tile_publishing.publish(
                Log(connection),
                folder,
                key,
                lambda written, due: progress.update(task, completed=written, total=due),
            )
    told = {"entries": done.entries, "files": done.files, "folder": str(folder)}
    words = f"{folder} publishes {done.entries} entries; {done.files} files are new"
    typer.echo(json.dumps(told) if as_json else words)


@app.command(epilog=_WITNESS_EXAMPLES)
def witness(
    book: BookName,
    witnesses: Annotated[
        list[str], typer.Option("--witness", metavar="VKEY=URL", help="A witness's pinned key and URL; several.")
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """Have the newest checkpoint cosigned by witnesses, who refuse a log whose history was rewritten."""
    from ledger.cli.witness_client import Witness
    from ledger.store.cosignatures import cosigned_checkpoint
    from ledger.store.snapshot import Log

    with _opened(book, writes=True) as engine:
        asked = [Witness.parse(one) for one in witnesses]
        told = [_cosigned(engine, one) for one in asked]
        with engine.begin() as connection:
            note = cosigned_checkpoint(connection, Log(connection).size)
    if as_json:
        typer.echo(json.dumps({"checkpoint": note, "witnesses": [{"exit": code, "told": what} for code, what in told]}))
    else:
        for code, what in told:
            typer.echo(what, err=code != 0)
    # A history that a witness refuses comes before a witness that cannot be reached.
    codes = [code for code, _ in told if code]
    if codes:
        raise typer.Exit(ExitCode.VERIFICATION_FAILED if ExitCode.VERIFICATION_FAILED in codes else min(codes))


@app.command(epilog=_RECEIPT_EXAMPLES)
def receipt(
    book: BookName,
    name: Annotated[str, typer.Argument(metavar="ID", help="The id of the command whose entry it is.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the entry and its receipt are written.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Write an entry and its receipt, under the checkpoint that most witnesses cosigned (C2SP tlog-proof)."""
    from ledger.store.cosignatures import cosigned_receipt
    from ledger.store.snapshot import Log

    with _opened(book, writes=False) as engine, engine.begin() as connection:
        facts = Log(connection)
        index = facts.entry_index(name)
        if index is None:
            raise failure(f"no entry has the id {name}", ExitCode.NOT_FOUND)
        folder.mkdir(parents=True, exist_ok=True)
        entry, proof = folder / f"{index}.entry", folder / f"{index}.tlog-proof"
        entry.write_bytes(facts.entry(index))
        proof.write_bytes(cosigned_receipt(facts, index).encode())
    told = {"entry": str(entry), "index": index, "receipt": str(proof)}
    typer.echo(json.dumps(told) if as_json else f"entry {index} is in {entry}, its receipt in {proof}")


def _cosigned(engine: Engine, witness: Witness) -> tuple[int, str]:
    """The exit code of one witness's answer, and a sentence."""
    import httpx

    from ledger.cli.witness_client import Refusal, witness_newest
    from ledger.wire.malformed import Malformed

    try:
        done = witness_newest(engine, witness)
    except Refusal as fault:
        return ExitCode.VERIFICATION_FAILED if fault.alarming else ExitCode.REFUSED, str(fault)
    except Malformed as fault:
        return ExitCode.VERIFICATION_FAILED, f"{witness.key.name} answered what is no cosignature of its key: {fault}"
    except httpx.RequestError as fault:
        return _RETRY, f"{witness.key.name} cannot be reached at {witness.url} ({type(fault).__name__})"
    except KeyError:
        return 4, "the book is empty: there is no checkpoint to cosign"
    before = " before" if done.repeated else ""
    return 0, f"{witness.key.name} cosigned{before} the checkpoint of {done.size} entries"


@contextmanager
def _opened(book: str, *, writes: bool) -> Iterator[Engine]:
    """A book's engine, its faults told in a sentence."""
    from ledger.store.engine import engine_of, name_of

    with book_errors_reported(book) as url:
        engine = engine_of(url, writes=writes)
        try:
            yield engine
        except KeyError:
            told = f"{name_of(url)} is empty or incomplete: 'epsilon verify' names what is wrong"
            raise failure(told, ExitCode.NOT_FOUND) from None
        finally:
            engine.dispose()
