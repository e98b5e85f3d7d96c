"""``epsilon db backup``, ``restore`` and ``move``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ledger.cli.terminal_output import progress
from migrations.cli.options import (
    LOCK_S,
    WHOLE_S,
    AsJson,
    Book,
    Kept,
    LockTimeout,
    Log,
    StatementTimeout,
    epilog,
    errors_reported,
    limits,
)

Backup = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]


def add_to(group: typer.Typer) -> None:
    """Add the three commands to ``epsilon db``."""
    group.command(epilog=epilog("backup demo/book.sqlite book.zip", "backup postgresql://db.example/ledger book.zip"))(
        backup
    )
    group.command(
        epilog=epilog(
            "restore book.zip restored.sqlite --log log.vkey --kept checkpoint",
            "restore book.zip postgresql://owner@db.example/ledger --log log.vkey --kept checkpoint",
        )
    )(restore)
    group.command(
        epilog=epilog(
            "move demo/book.sqlite postgresql://owner@db.example/ledger",
            "move postgresql://owner@db.example/ledger book.sqlite --log log.vkey",
        )
    )(move)


def backup(  # noqa: PLR0913 - one option each
    book: Book,
    file: Backup,
    *,
    log: Log = None,
    lock_timeout: LockTimeout = LOCK_S,
    statement_timeout: StatementTimeout = WHOLE_S,
    as_json: AsJson = False,
) -> None:
    """Write all of a book, as it is at one moment, to a new file; it may be written meanwhile."""
    from ledger.cli.input_files import find_key
    from migrations.connect.book_location import Place
    from migrations.transfer.book_transfer import back_up

    with errors_reported(as_json=as_json):
        place = Place.parse(book)
        key = find_key(log, place.path)
        with progress("backing up") as step:
            head = back_up(place, file, key, limits(lock_timeout, statement_timeout), step)
        result = {"checkpoint": head.note, "entries": head.size, "file": str(file), "root": head.root.hex()}
        signed = (
            "its newest checkpoint's signature verified" if key else "its newest checkpoint's signature not checked"
        )
        typer.echo(
            json.dumps(result) if as_json else f"{file} holds {place.display_name} at {head.size} entries, {signed}"
        )


def restore(  # noqa: PLR0913 - one option each
    file: Backup,
    book: Book,
    *,
    log: Log = None,
    kept: Kept = None,
    without_kept: Annotated[
        bool,
        typer.Option(
            "--without-kept",
            help="No checkpoint was kept: the restore may give back budgets that were spent after the backup.",
        ),
    ] = False,
    lock_timeout: LockTimeout = LOCK_S,
    statement_timeout: StatementTimeout = WHOLE_S,
    as_json: AsJson = False,
) -> None:
    """Restore a book from a backup, where there is none; refused if older than the checkpoint you kept."""
    from ledger.cli.input_files import need_key, read_kept
    from ledger.wire.malformed import Malformed
    from migrations.connect.book_location import Place
    from migrations.transfer.book_transfer import restore as make

    with errors_reported(as_json=as_json):
        if (kept is None) != without_kept:
            raise Malformed(
                "kept",
                "name the newest checkpoint you kept with --kept, or give --without-kept: without one it is unknown "
                "whether the restore gives back budgets that were spent after the backup",
            )
        place = Place.parse(book)
        key = need_key(log, place.path, file)
        known = None if kept is None else read_kept(kept, key)
        with progress("restoring") as step:
            head = make(file, place, key, known, limits(lock_timeout, statement_timeout), step=step)
        result = {
            "book": place.display_name,
            "entries": head.size,
            "kept": None if known is None else known.size,
            "root": head.root.hex(),
        }
        typer.echo(
            json.dumps(result)
            if as_json
            else _restored(place.display_name, head.size, None if known is None else known.size)
        )


def _restored(name: str, size: int, kept: int | None) -> str:
    since = (
        f"It holds every entry under the kept checkpoint of {kept} entries"
        if kept is not None
        else "It is unknown whether charges were acknowledged after the backup"
    )
    return (
        f"{name} is the book as it was at {size} entries, replayed and verified. {since}; what was recorded after "
        f"entry {size - 1} is not in it, so send again whatever was acknowledged since"
    )


def move(  # noqa: PLR0913 - one option each
    book: Book,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Where the book goes: like BOOK, and empty.")],
    *,
    log: Log = None,
    lock_timeout: LockTimeout = LOCK_S,
    statement_timeout: StatementTimeout = WHOLE_S,
    as_json: AsJson = False,
) -> None:
    """Move a book to another database, with the same entries and proofs, and seal the old one permanently."""
    from ledger.cli.input_files import need_key
    from migrations.connect.book_location import Place
    from migrations.transfer.book_transfer import move as carry

    with errors_reported(as_json=as_json):
        source, to = Place.parse(book), Place.parse(target)
        key = need_key(log, source.path, to.path)
        with progress("moving") as step:
            done = carry(source, to, key, limits(lock_timeout, statement_timeout), step)
        result = {"book": to.display_name, "entries": done.size, "repeated": done.repeated, "root": done.root.hex()}
        verb = "was moved before" if done.repeated else "is moved"
        typer.echo(
            json.dumps(result)
            if as_json
            else f"the book {verb} to {to.display_name}: {done.size} entries, replayed and verified there; "
            f"receipts stay valid. {source.display_name} can be read, and takes no more entries"
        )
