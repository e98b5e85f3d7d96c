"""Commands of the service: ``epsilon serve``, ``dev-issuer`` and ``demo``."""

from __future__ import annotations

import logging
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Final

import typer

from api.cli.clock import CLOCK
from client.cli.command_group import CommandGroup
from client.cli.error_report import errors_reported

if TYPE_CHECKING:
    import socket

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from api.auth.jwks_files import IssuerFiles
    from api.cli.settings import Settings

_GROUP: Final = CommandGroup()
app: Final = _GROUP.app
app.add_typer(CLOCK.app, name=CLOCK.name)


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
        issuers = IssuerFiles(settings.issuers)
        where = settings.port if port is None else port
        listener = _listening(host or settings.host, where, anywhere=settings.production)
    with listener:
        _serve(settings, log_key, issuers, listener, first_start=first_start)


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
        typer.echo(f"port {port} of {host} is in use: stop what listens there, or choose another port", err=True)
        raise typer.Exit(Code.CONFLICT.exit_code) from None


def _serve(
    settings: Settings,
    log_key: Ed25519PrivateKey,
    issuers: IssuerFiles,
    listener: socket.socket,
    *,
    first_start: bool,
) -> None:
    import hmac
    import sys

    from api.app import create_app
    from api.keys.key_store import FileKeyStore, KeyStore
    from api.middleware.json_log import log_to
    from api.server.http_server import base_url
    from api.server.http_server import serve as run
    from ledger.book.book import Book, BookUnusable
    from ledger.book.wall_clock import ClockWatch, unix_ms
    from ledger.domain.outcomes import Code
    from ledger.store.engine import name_of
    from ledger.verifier import LogKey
    from policy.decisions.gate import gate

    store = FileKeyStore(settings.keys) if settings.keys else KeyStore()
    if settings.keys:
        typer.echo(f"Data keys are stored unencrypted in {settings.keys}: for demonstrations only.", err=True)
    log_to(sys.stderr)
    log = LogKey(settings.origin, log_key.public_key().public_bytes_raw())
    kept = settings.kept_file(log)
    _say_what_is_kept(kept, first_start=first_start)
    try:
        book = Book.open(
            settings.book,
            gate=gate,
            log_key=log_key,
            origin=settings.origin,
            clock=unix_ms,
            watch=ClockWatch(settings.clock if settings.production else None, pauses=settings.production),
            kept=kept,
            first_start=first_start,
        )
    except BookUnusable as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(Code.CONFLICT.exit_code) from None
    try:
        url = settings.url or base_url(listener)
        typer.echo(f"Serving {name_of(settings.book)} at {url} until interrupted.", err=True)
        # The same in every process that serves this book.
        cursors = hmac.digest(log_key.private_bytes_raw(), b"epsilon-ledger cursors v1", "sha256")
        app = create_app(book, store, url=url, log=log, clock=unix_ms, issuers=issuers, cursor_key=cursors)
        preload_pricing()
        run(app, listener)
    finally:
        book.close()


def _say_what_is_kept(kept: Path | None, *, first_start: bool) -> None:
    """Say and log whether an older copy of the book would be noticed."""
    log = logging.getLogger("api.rollback")
    if kept is None:
        log.warning("no checkpoint is kept: allow_rollback")
        typer.echo(
            "WARNING: the profile says allow_rollback: an older copy of this book would be served, and would give "
            "spent budgets back.",
            err=True,
        )
        return
    typer.echo(f"The newest checkpoint is kept at {kept}: no older copy of this book is served.", err=True)
    if first_start and not kept.exists():
        log.warning("first start: this book is taken for the newest copy without a kept checkpoint")


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
        known = IssuerSettings.load(profile)
        listener = _listening(known.host, known.port)
        url = f"http://{known.host}:{listener.getsockname()[1]}"
        issuer = known.issuer(profile.parent, url, unix_ms)
    typer.echo(f"Development issuer (no real authentication) at {url} until interrupted.", err=True)
    run(create_issuer_app(issuer), listener)


@_GROUP.command("", "/tmp/epsilon-demo")  # noqa: S108 - an example
def demo(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder of the book and all other files.")
    ] = Path("demo"),
) -> None:
    """Run the demonstration: a budget governed from policy to model, on real data."""
    from rich.console import Console

    from api.demo.stage import StageTaken, perform
    from api.demo.trainer import TrainerFailed

    try:
        perform(folder, Console())
    except (StageTaken, TrainerFailed, OSError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


def preload_pricing() -> Thread:
    """Load the accounting libraries in a thread beside the service, which takes seconds and would delay a first charge.

    It reports the ε of one step as every charge's is reported, and keeps nothing but what that loaded.
    """

    def price_one_step() -> None:
        from fractions import Fraction

        from ledger.accounting.epsilon_report import reported_epsilon
        from ledger.mechanisms.mechanism import PoissonGaussian

        reported_epsilon(PoissonGaussian(Fraction(1, 100), Fraction(1), 1), Fraction(1, 100_000), "REPLACE_SPECIAL")
        logging.getLogger("api.warming").info("ready to price")

    thread = Thread(target=price_one_step, name="epsilon-warming", daemon=True)
    thread.start()
    return thread
