"""What the commands of ``epsilon db`` share: arguments, options and exit codes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ledger.cli import command_errors
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


errors_reported = partial(command_errors.errors_reported, system=ExitCode.CONFLICT)
"""What is there already, or cannot be written, conflicts with the request."""
