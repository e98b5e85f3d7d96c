"""``epsilon serve``: shows the book to its witnesses, opens it, and serves until an interrupt or a contradiction."""

from __future__ import annotations

import logging
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import FastAPI

from api.app import create_app
from api.auth.caller_quotas import CallerQuotas
from api.auth.jwks_files import IssuerFiles
from api.cli.settings import Settings
from api.keys.data_key_store import FileKeyStore, KeyStore
from api.middleware.json_log import log_to
from api.server.http_server import base_url, server_of
from api.server.witness_submission import WitnessContradicts, WitnessMissing, WitnessSubmission
from api.setup.key_files import service_secret
from client.keys.signer import load_private
from ledger.book.book import Book, BookUnusable
from ledger.book.wall_clock import unix_ms
from ledger.command_line.printable_text import say
from ledger.domain.outcomes import Code
from ledger.log.checkpoint import sign
from ledger.store.engine import name_of
from ledger.verifier import EMPTY_ROOT, Checkpoint, LogKey
from policy.decisions.gate import gate


def run_service(
    settings: Settings,
    log_key: Ed25519PrivateKey,
    issuers: IssuerFiles,
    listener: socket.socket,
    *,
    first_start: bool,
) -> None:
    """Serve a book until the process is interrupted, or a witness contradicts it or is missing.

    Args:
        settings: the profile's.
        log_key: signs checkpoints.
        issuers: whose tokens are accepted.
        listener: listens; closed by the caller.
        first_start: the book may have entries although no checkpoint of it is kept.

    Raises:
        typer.Exit: if the book cannot be opened, or the service had to stop; the reason was printed.
    """
    log = LogKey(settings.origin, log_key.public_key().public_bytes_raw())
    store = FileKeyStore(settings.keys) if settings.keys else KeyStore()
    if settings.keys:
        say(f"Data keys are stored unencrypted in {settings.keys}: for demonstrations only.", err=True)
    log_to(sys.stderr)
    with ExitStack() as opened:
        try:
            submission = _submission(settings, log_key)
            opened.callback(submission.close)
            book = _open_book(settings, log_key, log, submission, first_start=first_start)
            opened.callback(book.close)
        except (BookUnusable, FileNotFoundError, WitnessContradicts, WitnessMissing) as error:
            say(str(error), err=True)
            raise typer.Exit(getattr(error, "exit_code", Code.CONFLICT.exit_code)) from None
        url = settings.url or base_url(listener)
        say(f"Its console, for browsers: {url}/", err=True)
        say(f"Serving {name_of(settings.book)} at {url} until interrupted.", err=True)
        app = _app_of(settings, log_key, book, store, issuers, url)
        preload_pricing()
        server = server_of(app, settings.proxies, settings.quotas)

        def stop() -> None:
            """Take no more commands, and end. A book that is contradicted signs nothing more, no statement either."""
            if isinstance(submission.failure, WitnessContradicts):
                book.stop(submission.failure)
            book.close()
            server.should_exit = True

        submission.start(stop, book.witnessed)
        server.run(sockets=[listener])
        submission.close()
    if submission.failure is not None:
        say(f"The service stopped: {submission.failure}.", err=True)
        raise typer.Exit(submission.failure.exit_code)


def _app_of(  # noqa: PLR0913, PLR0917 - what a profile's service is made of
    settings: Settings,
    log_key: Ed25519PrivateKey,
    book: Book,
    store: KeyStore,
    issuers: IssuerFiles,
    url: str,
) -> FastAPI:
    """The service over an open book, on the profile's terms."""
    return create_app(
        book,
        store,
        url=url,
        log=LogKey(settings.origin, log_key.public_key().public_bytes_raw()),
        clock=unix_ms,
        issuers=issuers,
        secret=service_secret(log_key, settings.origin),
        quotas=CallerQuotas(settings.quotas, settings.proxies, forwarded=settings.forwarded),
        console=settings.console,
    )


def _submission(settings: Settings, log_key: Ed25519PrivateKey) -> WitnessSubmission:
    empty = sign(Checkpoint(settings.origin, 0, EMPTY_ROOT), log_key)
    return WitnessSubmission(settings.book, settings.witnesses, required=settings.witnesses_required, empty=empty)


def _open_book(
    settings: Settings,
    log_key: Ed25519PrivateKey,
    log: LogKey,
    submission: WitnessSubmission,
    *,
    first_start: bool,
) -> Book:
    """Open the profile's book, once its witnesses have seen it. Raises: as :meth:`Book.open` and the submission do."""
    kept = settings.kept_file(log)
    _say_what_is_kept(kept, beside=settings.keeps_beside_book)
    return Book.open(
        settings.book,
        gate=gate,
        log_key=log_key,
        origin=settings.origin,
        clock=unix_ms,
        watch=settings.clock_watch,
        kept=kept,
        first_start=first_start,
        show_first=submission.show,
        snapshot=settings.snapshot_file(log),
        old_key=None if settings.old_log_key is None else load_private(settings.old_log_key),
    )


def _say_what_is_kept(kept: Path | None, *, beside: bool) -> None:
    """Say, and log if not, whether an older copy of the book would be noticed."""
    if kept is None:
        logging.getLogger("api.rollback").warning("no checkpoint is kept: allow_rollback")
        say(
            "WARNING: the profile says allow_rollback: an older copy of this book would be served, and would give "
            "spent budgets back.",
            err=True,
        )
        return
    say(f"The newest checkpoint is kept at {kept}: no older copy of this book is served.", err=True)
    if beside:
        logging.getLogger("api.rollback").warning("the newest checkpoint is kept in the book's folder")
        say(
            f"WARNING: {kept} lies in the folder of the book: an older copy of that folder would be served, and would "
            "give spent budgets back. Name a file elsewhere in the profile (kept), or leave it out.",
            err=True,
        )


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
