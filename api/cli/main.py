"""Commands of the service: ``epsilon up``, ``serve``, ``dev-issuer``, ``demo``, ``report``, and on the log's key."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from api.cli import report as report_command
from api.cli.clock import CLOCK
from api.cli.init import INIT
from api.cli.planning import PLAN, POLICY
from client.cli.arguments import milliseconds, time_of
from client.cli.command_group import CommandGroup
from client.cli.error_report import errors_reported
from ledger.command_line.printable_text import say
from ledger.domain.exit_codes import ExitCode, describe_error
from ledger.wire.malformed import Malformed

if TYPE_CHECKING:
    import socket

_GROUP: Final = CommandGroup()
app: Final = _GROUP.app
app.add_typer(CLOCK.app, name=CLOCK.name)
app.add_typer(INIT.app, name=INIT.name)
app.add_typer(PLAN.app, name=PLAN.name)
app.add_typer(POLICY.app, name=POLICY.name)
app.registered_commands.extend(report_command.app.registered_commands)


@_GROUP.command("demo/profile.toml", "demo/profile.toml --port 8080")
def serve(
    profile: Annotated[Path, typer.Argument(metavar="PROFILE", help="A profile in TOML, with a table named serve.")],
    host: Annotated[str, typer.Option(help="The address to listen on, instead of the profile's.")] = "",
    port: Annotated[int | None, typer.Option(help="The port, instead of the profile's.", min=0, max=65_535)] = None,
    *,
    first_start: Annotated[
        bool,
        typer.Option(
            "--first-start",
            help="Accept that no checkpoint of this book is kept on this machine yet; an older copy is then not seen.",
        ),
    ] = False,
) -> None:
    """Serve a book over HTTP until interrupted; on loopback only, unless in production."""
    from api.auth.jwks_files import IssuerFiles
    from api.cli.settings import Settings
    from client.keys.signer import load_private

    with errors_reported():
        settings = Settings.load(profile)
        log_key = load_private(settings.log_key)
        issuers = IssuerFiles(settings.issuers, bounds=settings.bounds)
        where = settings.port if port is None else port
        listener = _listening(host or settings.host, where, anywhere=settings.production)
    # Only now, because it takes a second.
    from api.cli.service_process import run_service

    with errors_reported(), listener:
        run_service(settings, log_key, issuers, listener, first_start=first_start)


@_GROUP.command(
    "profile.toml log-2027.pem",
    "service.toml log-2028.pem --overlap 10000",
    "service.toml log-2028.pem --stolen-since 2028-03-01T00:00:00Z",
)
def rotate_log_key(
    profile: Annotated[Path, typer.Argument(metavar="PROFILE", help="A profile in TOML, with a table named serve.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The new private key, as `epsilon key new` wrote it.")],
    overlap: Annotated[
        int | None,
        typer.Option(help="Over how many entries more the old key signs beside the new one.", min=1, max=10_000_000),
    ] = None,
    stolen_since: Annotated[
        datetime | None,
        typer.Option(
            parser=time_of,
            metavar="TIME",
            help="When the old key was stolen, in UTC: what it alone signed since does not count.",
        ),
    ] = None,
    stolen: Annotated[
        str, typer.Option(help="An earlier key of the log that was stolen instead: its ID, or its file (JWK).")
    ] = "",
) -> None:
    """Replace the key of the log: an entry that the old key signs, under a checkpoint that both sign.

    Stop the service first. Then name the new key as serve.log_key in the profile, and start it again.
    """
    from api.cli.settings import Settings
    from client.keys.signer import Signer, load_private
    from client.service.key_bodies import key_id_of
    from ledger.book.log_key.rotation import Replacement
    from ledger.book.wall_clock import unix_ms

    with errors_reported():
        settings = Settings.load(profile)
        log_key, new_key = load_private(settings.log_key), load_private(new)
        if stolen and stolen_since is None:
            raise Malformed("--stolen-since", "must say when that key was stolen")
        which = key_id_of(stolen) if stolen else Signer(log_key).key_id
    from api.cli.log_key import rotate

    since = None if stolen_since is None else milliseconds(stolen_since)
    with errors_reported():
        if since is not None and since > unix_ms():
            raise Malformed("--stolen-since", "lies in the future: nothing that the key has signed would be revoked")
        terms = Replacement(new_key, overlap, None if since is None else which, since or 0)
        rotate(profile, settings, log_key, terms, new)


@_GROUP.command('profile.toml --reason "a laptop is missing"', 'profile.toml --reason "it was found" --resume')
def suspend_log_key(
    profile: Annotated[Path, typer.Argument(metavar="PROFILE", help="A profile in TOML, with a table named serve.")],
    reason: Annotated[str, typer.Option(help="Why; recorded permanently.")],
    *,
    resume: Annotated[bool, typer.Option("--resume", help="End the suspension.")] = False,
) -> None:
    """Suspend the key of the log: it signs nothing, and nothing is recorded, until it is resumed or replaced.

    Stop the service first. Started again, it answers reads alone.
    """
    from api.cli.settings import Settings
    from client.keys.signer import load_private

    with errors_reported():
        settings = Settings.load(profile)
        log_key = load_private(settings.log_key)
    from api.cli.log_key import suspend

    with errors_reported():
        suspend(settings, log_key, reason, resume=resume)


def _listening(host: str, port: int, *, anywhere: bool = False) -> socket.socket:
    """A listening socket; a port that is taken is a conflict. Raises: Malformed, OSError, typer.Exit."""
    from errno import EADDRINUSE

    from api.server.http_server import listen
    from ledger.domain.outcomes import Code

    try:
        return listen(host, port, anywhere=anywhere)
    except OSError as error:
        if error.errno != EADDRINUSE:
            raise
        say(f"port {port} of {host} is in use: stop what listens there, or choose another port", err=True)
        raise typer.Exit(Code.CONFLICT.exit_code) from None


@_GROUP.command("demo/profile.toml", "development.toml &")
def dev_issuer(
    profile: Annotated[Path, typer.Argument(metavar="PROFILE", help="A profile in TOML, with a table named issuer.")],
) -> None:
    """Run a development OAuth 2.0 and OpenID Connect server (no real authentication) until interrupted."""
    from api.dev_issuer.issuer import IssuerSettings
    from api.dev_issuer.routes import create_issuer_app
    from api.server.http_server import serve as run
    from ledger.book.wall_clock import unix_ms

    with errors_reported():
        settings = IssuerSettings.load(profile)
        listener = _listening(settings.host, settings.port)
        url = f"http://{settings.host}:{listener.getsockname()[1]}"
        issuer = settings.issuer(profile.parent, url, unix_ms)
    say(f"Development issuer (no real authentication) at {url} until interrupted.", err=True)
    run(create_issuer_app(issuer), listener)


@_GROUP.command("", "~/ledger --port 8010 --issuer-port 8110")
def up(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder, or one that it made.")] = Path(
        "epsilon-up"
    ),
    port: Annotated[
        int | None, typer.Option(help="Port of a new folder's service, 0: a free one. Default: 8000.", min=0, max=65535)
    ] = None,
    issuer_port: Annotated[
        int | None, typer.Option(help="Port of its issuer, 0: a free one. Default: 8100.", min=0, max=65535)
    ] = None,
    *,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the service's own log, in JSON.")] = False,
) -> None:
    """Make and run a ledger for development on this machine."""
    import logging

    from api.cli.interrupts import interrupts

    with interrupts() as received, errors_reported():
        say(f"Starting in {folder}; Ctrl-C stops it.")
        from api.cli.up import run_development
        from api.middleware.json_log import log_to
        from api.setup.development_folder import FolderTaken
        from ledger.book.submitted_command import BookUnusable
        from ledger.domain.outcomes import Code

        try:
            log_to(sys.stderr, logging.INFO if verbose else logging.ERROR)
            run_development(folder, port, issuer_port, say, received)
        except (FolderTaken, BookUnusable) as error:
            say(str(error), err=True)
            raise typer.Exit(Code.CONFLICT.exit_code) from None


@_GROUP.command("", "/tmp/epsilon-demo")  # noqa: S108 - an example
def demo(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder of the book and all other files.")
    ] = Path("demo"),
    *,
    replace: Annotated[bool, typer.Option("--replace", help="Delete an earlier demonstration there.")] = False,
) -> None:
    """Run the demonstration: a budget governed from policy to model, on real data.

    An earlier demonstration and its book are kept: their folder gets another name.
    """
    if folder.exists() and not folder.is_dir():
        say(f"FOLDER: {folder} is a file: name a folder, which is made if it is not there", err=True)
        raise typer.Exit(ExitCode.INVALID)
    try:
        # It is written into the demonstration's files, and its commands.
        str(folder).encode()
    except UnicodeEncodeError as error:
        say(f"FOLDER: {describe_error(error)}", err=True)
        raise typer.Exit(ExitCode.INVALID) from None
    say(f"Starting the demonstration in {folder}.")
    from rich.console import Console

    from api.demo.stage import StageTaken, perform
    from api.demo.trainer import TrainerFailed

    try:
        perform(folder, Console(), replace=replace)
    except (StageTaken, TrainerFailed, OSError) as error:
        say(str(error), err=True)
        raise typer.Exit(1) from None
