"""The declaration of a command of ``epsilon db``: its books, its timeouts, and the exit code of each error.

A declared function gets the timeouts first and returns a :class:`~client.cli.command_group.Result`. The decorator reads
its arguments ``place`` and ``target`` as books, and adds --lock-timeout, --statement-timeout and --json.
"""

from __future__ import annotations

from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from client.cli.command_group import CommandGroup, Decorator, Function, Result, as_command
from ledger.cli.command_errors import errors_reported
from ledger.command_line.printable_text import json_text, say
from ledger.domain.exit_codes import ExitCode

LogFile = Annotated[
    Path | None,
    typer.Option(
        "--log", metavar="FILE", help="The log's verifier key, as you kept it; default: log.vkey beside the book."
    ),
]
KeptFile = Annotated[
    Path | None, typer.Option("--kept", metavar="FILE", help="The newest signed checkpoint that you kept.")
]
_PLACES: Final = {
    "place": Annotated[
        str, typer.Argument(metavar="BOOK", help="The book: an SQLite file, or the postgresql:// URL of a database.")
    ],
    "target": Annotated[str, typer.Argument(metavar="TARGET", help="Where the book goes: like BOOK, and empty.")],
}
_SECONDS_MAX: Final = 86_400
_LOCK_TIMEOUT: Final = Annotated[
    float,
    typer.Option(
        metavar="S", min=0, max=_SECONDS_MAX, help="Seconds to wait for another process that has the book open."
    ),
]
_STATEMENT_TIMEOUT: Final = Annotated[
    float,
    typer.Option(
        metavar="S",
        min=0,
        max=_SECONDS_MAX,
        help="Seconds that one statement may take; 0 for no limit. On SQLite the time to process its rows counts too, "
        "so commands that read a whole book set no limit of their own.",
    ),
]
_JSON: Final = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_LOCK_S: Final = 10.0
GLANCE_S, MIGRATION_S, WHOLE_S = 60.0, 3_600.0, 0.0
"""Seconds for one statement of a command that reads a few rows, migrates and hashes the log, or reads everything."""
_CODES: Final = (
    "Exit codes: 0 done; 2 invalid input; 4 no such book or file; 5 in conflict with what is there, "
    "nothing was changed; 7 verification failed."
)
GROUP: Final = CommandGroup("db", "Make a book, keep its schema up to date, check, back up and move it.")


def book_command(*examples: str, statement_s: float = WHOLE_S) -> Decorator:
    """Declare a command on a book; ``statement_s`` is the default of --statement-timeout."""
    options = (("lock_timeout", _LOCK_TIMEOUT, _LOCK_S), ("statement_timeout", _STATEMENT_TIMEOUT, statement_s))
    added = [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)
        for name, kind, default in (*options, ("as_json", _JSON, False))
    ]

    def declare(function: Function) -> Function:
        def run(*, lock_timeout: float, statement_timeout: float, as_json: bool, **own: Any) -> None:  # noqa: ANN401 - arguments of any type
            from migrations.connect.book_location import Place
            from migrations.connect.exclusive_access import Limits

            # An existing or unwritable target conflicts with the request.
            with errors_reported(as_json=as_json, system=ExitCode.CONFLICT):
                places = {name: Place.parse(own[name]) for name in _PLACES if name in own}
                result: Result | None = function(Limits(lock_timeout, statement_timeout), **{**own, **places})
                if result is not None:
                    say(json_text(result.value) if as_json else result.text)

        GROUP.add(function, as_command(function, run, after=added, skip=1, types=_PLACES), examples, _CODES)
        return function

    return declare
