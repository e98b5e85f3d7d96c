"""The operator's commands: ``epsilon db``."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from ledger.cli.terminal_output import progress
from migrations.cli import backup
from migrations.cli.options import (
    GLANCE_S,
    LOCK_S,
    MIGRATION_S,
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

app = typer.Typer(pretty_exceptions_show_locals=False)
db = typer.Typer(no_args_is_help=True, help="Make a book, keep its schema up to date, check, back up and move it.")
app.add_typer(db, name="db")
backup.add_to(db)


@db.callback()
def _group() -> None:
    """Make a book, keep its schema up to date, check, back up and move it."""


@db.command(epilog=epilog("status demo/book.sqlite", "status postgresql://owner@db.example/ledger --json"))
def status(
    book: Book,
    *,
    lock_timeout: LockTimeout = LOCK_S,
    statement_timeout: StatementTimeout = GLANCE_S,
    as_json: AsJson = False,
) -> None:
    """Report the status of a book: schema, entries, newest checkpoint, triggers, and whether a process has it open."""
    from migrations.cli.status import status_of
    from migrations.connect.book_location import Place

    with errors_reported(as_json=as_json):
        found = status_of(Place.parse(book), limits(lock_timeout, statement_timeout))
        typer.echo(json.dumps(found.to_json()) if as_json else found.in_words())


@db.command(
    epilog=epilog("upgrade demo/book.sqlite", "upgrade postgresql://owner@db.example/ledger --sql > upgrade.sql")
)
def upgrade(  # noqa: PLR0913 - one option each
    book: Book,
    *,
    sql: Annotated[bool, typer.Option("--sql", help="Print the SQL that would run, and run nothing.")] = False,
    log: Log = None,
    lock_timeout: LockTimeout = LOCK_S,
    statement_timeout: StatementTimeout = MIGRATION_S,
    as_json: AsJson = False,
) -> None:
    """Bring a book to the newest schema and verify its log; make it where there is none."""
    from ledger.cli.input_files import find_key
    from migrations.cli.status import revision_at
    from migrations.cli.upgrade import upgrade_book
    from migrations.connect.book_location import Place
    from migrations.schema.revisions import print_sql

    with errors_reported(as_json=as_json):
        place, waits = Place.parse(book), limits(lock_timeout, statement_timeout)
        if sql:
            print_sql(sys.stdout, place.url.get_backend_name(), revision_at(place, waits))
            return
        key = find_key(log, place.path)
        with progress("verifying") as step:
            done = upgrade_book(place, waits, key, step)
        typer.echo(json.dumps(done.to_json(place.display_name)) if as_json else done.in_words(place.display_name))


@db.command(epilog=epilog("downgrade demo/book.sqlite 0001", "downgrade demo/book.sqlite 0001 --lock-timeout 60"))
def downgrade(  # noqa: PLR0913 - one option each
    book: Book,
    revision: Annotated[str, typer.Argument(metavar="REVISION", help="The schema to downgrade to, such as 0001.")],
    *,
    log: Log = None,
    lock_timeout: LockTimeout = LOCK_S,
    statement_timeout: StatementTimeout = MIGRATION_S,
    as_json: AsJson = False,
) -> None:
    """Bring a book to an older schema, for an older program; refused if it would delete a row of the log."""
    from ledger.cli.input_files import find_key
    from migrations.cli.upgrade import downgrade_book
    from migrations.connect.book_location import Place

    with errors_reported(as_json=as_json):
        place = Place.parse(book)
        key = find_key(log, place.path)
        with progress("verifying") as step:
            done = downgrade_book(place, revision, limits(lock_timeout, statement_timeout), key, step)
        typer.echo(json.dumps(done.to_json(place.display_name)) if as_json else done.in_words(place.display_name))


@db.command(epilog=epilog("check demo/book.sqlite", "check demo/book.sqlite --kept checkpoint --json"))
def check(  # noqa: PLR0913 - one option each
    book: Book,
    *,
    log: Log = None,
    kept: Kept = None,
    lock_timeout: LockTimeout = LOCK_S,
    statement_timeout: StatementTimeout = WHOLE_S,
    as_json: AsJson = False,
) -> None:
    """Verify everything: the file, the schema, every trigger; then replay every entry and policy decision."""
    from ledger.cli.input_files import need_key, read_kept
    from ledger.cli.main import installed_gate
    from migrations.cli.status import check_book
    from migrations.connect.book_location import Place

    with errors_reported(as_json=as_json):
        place = Place.parse(book)
        key = need_key(log, place.path)
        known = None if kept is None else read_kept(kept, key)
        with progress("replaying") as step:
            found = check_book(
                place, key, known, step, gate=installed_gate(), limits=limits(lock_timeout, statement_timeout)
            )
        typer.echo(json.dumps(found.to_json()) if as_json else f"the schema is as expected; {found.in_words()}")
