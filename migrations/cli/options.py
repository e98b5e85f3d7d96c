"""What the commands of ``epsilon db`` share: arguments, progress, and how an error ends them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ledger.cli.command_errors import broken_pipe_ends, failure, sentence
from ledger.domain.exit_codes import ExitCode

if TYPE_CHECKING:
    from migrations.connect.exclusive_access import Limits

Book = Annotated[
    str, typer.Argument(metavar="BOOK", help="The book: an SQLite file, or the postgresql:// URL of a database.")
]
Log = Annotated[
    Path | None,
    typer.Option(
        "--log", metavar="FILE", help="The log's verifier key, as you kept it; log.vkey beside the book if not given."
    ),
]
Kept = Annotated[
    Path | None, typer.Option("--kept", metavar="FILE", help="The newest signed checkpoint that you kept.")
]
LockTimeout = Annotated[
    float,
    typer.Option(
        "--lock-timeout",
        metavar="S",
        min=0,
        max=86_400,
        help="Seconds to wait for another process that has the book open.",
    ),
]
StatementTimeout = Annotated[
    float,
    typer.Option(
        "--statement-timeout",
        metavar="S",
        min=0,
        max=86_400,
        help="Seconds that one statement may take; 0 for no limit. On SQLite the time to process its rows counts too, "
        "so commands that read a whole book set no limit of their own.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LOCK_S: Final = 10.0
GLANCE_S, MIGRATION_S, WHOLE_S = 60.0, 3_600.0, 0.0
"""Seconds for one statement of what reads a few rows, of what migrates and hashes the log, of what reads all."""
CODES: Final = (
    "Exit codes: 0 done; 2 invalid input; 4 no such book or file; 5 in conflict with what is there, "
    "nothing was changed; 7 verification failed."
)


def epilog(*examples: str) -> str:
    """The text below a command's help."""
    return "\n\n".join(("Examples:", *(f"  epsilon db {one}" for one in examples), CODES))


def limits(lock: float, statement: float) -> Limits:
    """The two timeouts as one value."""
    from migrations.connect.exclusive_access import Limits

    return Limits(lock_s=lock, statement_s=statement)


@contextmanager
def errors_reported(*, as_json: bool = False) -> Iterator[None]:
    """Report an error in one sentence, and end with its exit code."""
    from ledger.audit.replay import Broken
    from ledger.wire.malformed import Malformed
    from migrations.connect.errors import NotDone

    try:
        with broken_pipe_ends():
            yield
    except NotDone as error:
        raise failure(str(error), error.exit_code) from None
    except Malformed as error:
        raise failure(str(error), ExitCode.INVALID) from None
    except Broken as error:
        if not as_json:
            raise failure(str(error), ExitCode.VERIFICATION_FAILED) from None
        typer.echo(json.dumps(error.to_json()))
        raise typer.Exit(ExitCode.VERIFICATION_FAILED) from None
    except OSError as error:
        raise failure(
            sentence(error), ExitCode.NOT_FOUND if isinstance(error, FileNotFoundError) else ExitCode.CONFLICT
        ) from None


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on standard error, if that is a terminal; yields the function that reports each step."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
