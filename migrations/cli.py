"""The operator's commands: ``epsilon db``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

app = typer.Typer(pretty_exceptions_show_locals=False)
db = typer.Typer(no_args_is_help=True, help="Make a book and bring its schema up to date.")
app.add_typer(db, name="db")

Book = Annotated[Path, typer.Argument(metavar="BOOK", help="The book: an SQLite file.")]
_EXAMPLES: Final = """
Examples:

  epsilon db {0} demo/book.sqlite

  epsilon db {0} /srv/ledger/book.sqlite
"""


@db.callback()
def _group() -> None:
    """Make a book and bring its schema up to date."""


@db.command(epilog=_EXAMPLES.format("upgrade"))
def upgrade(book: Book) -> None:
    """Bring a book to the newest schema; make it where there is none."""
    import migrations

    with _faults_told():
        migrations.upgrade(f"sqlite:///{book}")
        typer.echo(f"{book} is at schema {migrations.current(f'sqlite:///{book}')}")


@db.command(epilog=_EXAMPLES.format("status"))
def status(book: Book) -> None:
    """Say which schema a book has."""
    import migrations

    if not book.is_file():
        typer.echo(f"there is no book at {book}: run 'epsilon db upgrade {book}' to make one", err=True)
        raise typer.Exit(4)
    with _faults_told():
        typer.echo(f"{book} is at schema {migrations.current(f'sqlite:///{book}') or 'none'}")


@contextmanager
def _faults_told() -> Iterator[None]:
    import migrations

    try:
        yield
    except (migrations.SchemaUnknown, OSError) as fault:
        typer.echo(str(fault), err=True)
        raise typer.Exit(5) from None
