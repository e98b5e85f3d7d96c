"""``epsilon clock``: the operator's word on the clock of a service whose writing pauses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from client.cli.command_group import CommandGroup
from client.cli.error_report import errors_reported
from ledger.command_line.printable_text import say

CLOCK: Final = CommandGroup("clock", "The clock of a service: accept it after a jump, or take the log's time back.")


@CLOCK.command("profile.toml", "profile.toml --yes")
def accept(
    profile: Annotated[
        Path, typer.Argument(metavar="PROFILE", help="The service's profile, with a table named serve.")
    ],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> None:
    """Accept this machine's clock as it reads now, so that a service that pauses goes on; it logs that.

    Run it on the service's machine, by an account that may write the file that the profile names as clock.
    """
    from datetime import UTC, datetime

    from api.cli.settings import Settings
    from ledger.book.wall_clock import accept as accept_clock
    from ledger.book.wall_clock import unix_ms
    from ledger.wire.malformed import Malformed

    with errors_reported():
        settings = Settings.load(profile)
        if not settings.production:
            raise Malformed("serve.production", "is not set: a service in development never pauses")
        if not yes:
            time = datetime.fromtimestamp(unix_ms() // 1000, UTC)
            question = f"The clock reads {time:%Y-%m-%d %H:%M:%S} UTC. Entries' times never go back: is that right?"
            typer.confirm(question, abort=True, err=True)
        accept_clock(settings.clock)
    say(f"Accepted, in {settings.clock}. A service that pauses goes on within seconds; one that starts uses it.")
