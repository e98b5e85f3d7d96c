"""The commands that export a log's proofs: ``epsilon publish``, ``epsilon witness`` and ``epsilon receipt``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ledger.cli.book_access import AsJson, BookName, LogFile, book_engine
from ledger.cli.command_errors import failure
from ledger.cli.terminal_output import examples, progress
from ledger.cli.verbose_option import verbosely
from ledger.command_line.printable_text import json_text, printable, say
from ledger.domain.exit_codes import ExitCode
from ledger.wire.malformed import Malformed

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from ledger.cli.witness_client import Witness

app = typer.Typer(pretty_exceptions_show_locals=False)


@app.command(
    epilog=examples("publish", "demo/book.sqlite demo/public", "demo/book.sqlite /srv/www/log --log demo/log.vkey")
)
@verbosely
def publish(
    book: BookName,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a web server; made if missing.")],
    log: LogFile = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Write the log as static files (C2SP tlog-tiles): its checkpoint, every hash, every entry."""
    from ledger.cli import tile_publishing
    from ledger.cli.input_files import need_key
    from ledger.store.snapshot import Log

    with _open_book(book, writes=False) as engine, engine.begin() as connection, progress("publishing") as step:
        key = need_key(log, None if "://" in book else Path(book))
        done = tile_publishing.publish(Log(connection), folder, key, step)
    result = {"entries": done.entries, "files": done.files, "folder": str(folder)}
    words = f"{folder} now holds {done.entries} entries; {done.files} files were written"
    say(json_text(result) if as_json else words)


@app.command(
    epilog=examples(
        "witness",
        "demo/book.sqlite --witness witness.example/w1+a3e00fe2+BNy/co4C1Hn1p+INwJrfUlgz7W55dSZReusH/GhUhJ/G=https://witness.example",
        'demo/book.sqlite --witness "$(cat witness.txt)" --json',
    )
)
@verbosely
def witness(
    book: BookName,
    witnesses: Annotated[
        list[str], typer.Option("--witness", metavar="VKEY=URL", help="A witness's pinned key and URL. Repeatable.")
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """Have witnesses cosign the newest checkpoint; a witness refuses a log whose history was rewritten."""
    from ledger.cli.witness_client import Witness
    from ledger.store.cosignatures import cosigned_checkpoint
    from ledger.store.snapshot import Log

    with _open_book(book, writes=True) as engine:
        requested = [Witness.parse(text) for text in witnesses]
        answers = [_request_cosignature(engine, pinned) for pinned in requested]
        with engine.begin() as connection:
            note = cosigned_checkpoint(connection, Log(connection).size)
    if as_json:
        say(json_text({"checkpoint": note, "witnesses": [{"exit": code, "told": what} for code, what in answers]}))
    else:
        for code, what in answers:
            say(printable(what), err=code != 0)
    # A history that a witness refuses comes before a witness that cannot be reached.
    codes = [code for code, _ in answers if code]
    if codes:
        raise typer.Exit(ExitCode.VERIFICATION_FAILED if ExitCode.VERIFICATION_FAILED in codes else min(codes))


@app.command(epilog=examples("receipt", "demo/book.sqlite run-1 evidence", "demo/book.sqlite run-1 evidence --json"))
@verbosely
def receipt(
    book: BookName,
    name: Annotated[str, typer.Argument(metavar="ID", help="The id of the command.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where both files go; made if missing.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Write an entry and its receipt, under the checkpoint that most witnesses cosigned (C2SP tlog-proof)."""
    from ledger.files.atomic_file import SHARED, replace_file
    from ledger.store.cosignatures import cosigned_receipt
    from ledger.store.snapshot import Log

    with _open_book(book, writes=False) as engine, engine.begin() as connection:
        facts = Log(connection)
        index = facts.entry_index(name)
        if index is None:
            raise failure(f"no entry has the id {name}", ExitCode.NOT_FOUND)
        folder.mkdir(parents=True, exist_ok=True)
        entry, proof = folder / f"{index}.entry", folder / f"{index}.tlog-proof"
        # Whole or as it was before, and never through a link to another file.
        replace_file(entry, facts.entry(index), mode=SHARED)
        replace_file(proof, cosigned_receipt(facts, index).encode(), mode=SHARED)
    result = {"entry": str(entry), "index": index, "receipt": str(proof)}
    say(json_text(result) if as_json else f"wrote entry {index} to {entry} and its receipt to {proof}")


def _request_cosignature(engine: Engine, witness: Witness) -> tuple[int, str]:
    """The exit code of one witness's answer, and a sentence."""
    import httpx

    from ledger.cli.witness_client import WitnessRefused, witness_newest

    try:
        done = witness_newest(engine, witness)
    except WitnessRefused as error:
        return ExitCode.VERIFICATION_FAILED if error.alarming else ExitCode.REFUSED, str(error)
    except Malformed as error:
        return (
            ExitCode.VERIFICATION_FAILED,
            f"{witness.key.name} answered without a valid cosignature of its key: {error}",
        )
    except httpx.RequestError as error:
        return ExitCode.RETRY, f"{witness.key.name} cannot be reached at {witness.url} ({type(error).__name__})"
    except KeyError:
        return ExitCode.NOT_FOUND, "the book is empty: there is no checkpoint to cosign"
    before = " before" if done.repeated else ""
    return 0, f"{witness.key.name} cosigned{before} the checkpoint of {done.size} entries"


@contextmanager
def _open_book(book: str, *, writes: bool) -> Iterator[Engine]:
    """A book's engine; every error ends in one sentence."""
    from ledger.store.engine import name_of

    with book_engine(book, writes=writes) as engine:
        try:
            yield engine
        except KeyError:
            sentence = f"{name_of(engine.url)} is empty or incomplete: run 'epsilon verify' to find the error"
            raise failure(sentence, ExitCode.NOT_FOUND) from None
