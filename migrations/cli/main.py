"""The operator's commands: ``epsilon db``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from client.cli.command_group import Result
from ledger.cli.input_files import find_key, need_key, read_kept, trusted_in
from ledger.cli.terminal_output import progress
from ledger.wire.malformed import Malformed
from migrations.cli.book_command import GLANCE_S, GROUP, MIGRATION_S, KeptFile, LogFile, book_command

if TYPE_CHECKING:
    from migrations.connect.book_location import Place
    from migrations.connect.exclusive_access import Limits

app = typer.Typer(pretty_exceptions_show_locals=False)
app.add_typer(GROUP.app, name=GROUP.name)
_Backup = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]


@book_command("demo/book.sqlite book.zip", "postgresql://db.example/ledger book.zip")
def backup(limits: Limits, place: Place, file: _Backup, *, log: LogFile = None) -> Result:
    """Write a snapshot of a whole book to a new file; the book may be written meanwhile."""
    from migrations.transfer.book_transfer import back_up

    key = find_key(log, place.named)
    with progress("backing up") as step:
        head = back_up(place, file, key, limits, step)
    signature = f"its newest checkpoint's signature {'verified' if key else 'not checked'}"
    return Result(
        {"checkpoint": head.note, "entries": head.size, "file": str(file), "root": head.root.hex()},
        f"{file} holds {place.display_name} at {head.size} entries, {signature}",
    )


@book_command(
    "book.zip restored.sqlite --log log.vkey --kept checkpoint",
    "book.zip postgresql://owner@db.example/ledger --log log.vkey --kept checkpoint",
)
def restore(  # noqa: PLR0913 - one option each
    limits: Limits,
    file: _Backup,
    place: Place,
    *,
    log: LogFile = None,
    kept: KeptFile = None,
    without_kept: Annotated[
        bool,
        typer.Option(
            "--without-kept",
            help="No checkpoint was kept: the restore may give back budgets that were spent after the backup.",
        ),
    ] = False,
) -> Result:
    """Restore a book from a backup to an empty place; refused if older than the checkpoint you kept."""
    from migrations.transfer.book_transfer import restore as make

    if (kept is None) != without_kept:
        raise Malformed(
            "kept",
            "name the newest checkpoint you kept with --kept, or give --without-kept: without one it is unknown "
            "whether the restore gives back budgets that were spent after the backup",
        )
    key = need_key(log, place.named, file)
    checkpoint = None if kept is None else read_kept(kept, key)
    with progress("restoring") as step:
        head = make(file, place, key, checkpoint, limits, step=step)
    size = None if checkpoint is None else checkpoint.size
    since = (
        "It is unknown whether charges were acknowledged after the backup"
        if size is None
        else f"It holds every entry under the kept checkpoint of {size} entries"
    )
    return Result(
        {"book": place.display_name, "entries": head.size, "kept": size, "root": head.root.hex()},
        f"{place.display_name} is the book as it was at {head.size} entries, replayed and verified. {since}; what was "
        f"recorded after entry {head.size - 1} is not in it, so send again whatever was acknowledged since",
    )


@book_command(
    "demo/book.sqlite postgresql://owner@db.example/ledger",
    "postgresql://owner@db.example/ledger book.sqlite --log log.vkey",
)
def move(limits: Limits, place: Place, target: Place, *, log: LogFile = None) -> Result:
    """Move a book to another database, with the same entries and proofs, and seal the old one permanently."""
    from migrations.transfer.book_transfer import move as carry

    key = need_key(log, place.named, target.named)
    with progress("moving") as step:
        head, repeated = carry(place, target, key, limits, step)
    verb = "was moved before" if repeated else "is moved"
    return Result(
        {"book": target.display_name, "entries": head.size, "repeated": repeated, "root": head.root.hex()},
        f"the book {verb} to {target.display_name}: {head.size} entries, replayed and verified there; receipts stay "
        f"valid. {place.display_name} can be read, and takes no more entries",
    )


@book_command(
    "book.sqlite rescued.sqlite --log log.vkey --kept checkpoint",
    "postgresql://owner@db.example/ledger postgresql://owner@db.example/rescued --kept checkpoint",
)
def rescue(  # noqa: PLR0913 - one option each
    limits: Limits,
    place: Place,
    target: Place,
    *,
    log: LogFile = None,
    kept: Annotated[
        list[Path] | None,
        typer.Option("--kept", metavar="FILE", help="A signed checkpoint that you or a witness kept; may be repeated."),
    ] = None,
    without_kept: Annotated[
        bool,
        typer.Option(
            "--without-kept",
            help="No checkpoint was kept: the new book may give back budgets that were spent after its last entry.",
        ),
    ] = False,
    ignore_seal: Annotated[
        bool, typer.Option("--ignore-seal", help="No book was made where its seal says that it went, and none will be.")
    ] = False,
) -> Result:
    """Make a new book of the longest sound prefix of one that cannot be opened; the old one stays as evidence."""
    from migrations.cli.rescue import rescue_book

    key = need_key(log, place.named, target.named)
    with progress("rescuing") as step:
        return rescue_book(
            place, target, key, kept or [], limits, step=step, without_kept=without_kept, ignore_seal=ignore_seal
        )


@book_command("demo/book.sqlite", "postgresql://owner@db.example/ledger --json", statement_s=GLANCE_S)
def status(limits: Limits, place: Place) -> Result:
    """Report the status of a book: schema, entries, newest checkpoint, triggers, and whether a process has it open."""
    from migrations.cli.status import status_of

    return status_of(place, limits)


@book_command("demo/book.sqlite", "postgresql://owner@db.example/ledger --sql > upgrade.sql", statement_s=MIGRATION_S)
def upgrade(
    limits: Limits,
    place: Place,
    *,
    sql: Annotated[bool, typer.Option("--sql", help="Print the SQL that would run, and run nothing.")] = False,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="REVISION",
            help="With --sql: the schema that the book has, 'none' for a new one; no database is read.",
        ),
    ] = None,
    log: LogFile = None,
) -> Result | None:
    """Upgrade a book to the newest schema and verify its log; create it if there is none."""
    from migrations.cli.status import revision_at
    from migrations.cli.upgrade import migrate
    from migrations.schema.revisions import print_sql

    if start is not None and not sql:
        raise Malformed("from", "goes with --sql: without it the book's own schema is read")
    if sql:
        here = revision_at(place, limits) if start is None else start
        print_sql(sys.stdout, place.url.get_backend_name(), None if here == "none" else here)
        return None
    key = find_key(log, place.named)
    with progress("verifying") as step:
        return migrate(place, limits, key, step)


@book_command("demo/book.sqlite 0001", "demo/book.sqlite 0001 --lock-timeout 60", statement_s=MIGRATION_S)
def downgrade(
    limits: Limits,
    place: Place,
    revision: Annotated[str, typer.Argument(metavar="REVISION", help="The schema to downgrade to, such as 0001.")],
    *,
    log: LogFile = None,
) -> Result:
    """Downgrade a book to an older schema, for an older program; refused if it would delete a row of the log."""
    from migrations.cli.upgrade import migrate

    key = find_key(log, place.named)
    with progress("verifying") as step:
        return migrate(place, limits, key, step, down_to=revision)


@book_command("demo/book.sqlite", "demo/book.sqlite --kept checkpoint --json")
def check(limits: Limits, place: Place, *, log: LogFile = None, kept: KeptFile = None) -> Result:
    """Verify everything: the file, the schema, every trigger; then replay every entry and policy decision."""
    from ledger.cli.main import installed_gate
    from migrations.cli.status import check_book

    key = need_key(log, place.named)
    checkpoint = None if kept is None else read_kept(kept, trusted_in(str(place.url), key))
    with progress("replaying") as step:
        report = check_book(place, key, checkpoint, step, gate=installed_gate(), limits=limits)
    return Result(report.to_json(), f"the schema is as expected; {report.in_words()}")
