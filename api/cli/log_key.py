"""``epsilon rotate-log-key``: the key of a service's log is replaced, while no service runs by the old one."""

from __future__ import annotations

from pathlib import Path

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from api.cli.settings import Settings
from api.server.witness_submission import WitnessContradicts, WitnessMissing, WitnessSubmission
from ledger.book.book import BookUnusable
from ledger.book.log_key.rotation import Rotated, rotate_log_key
from ledger.book.submitted_command import BookPaused
from ledger.book.wall_clock import unix_ms
from ledger.domain.outcomes import Code
from ledger.log.checkpoint import sign
from ledger.verifier import EMPTY_ROOT, Checkpoint, LogKey
from policy.decisions.gate import gate


def rotate(settings: Settings, log_key: Ed25519PrivateKey, new_key: Ed25519PrivateKey, new: Path) -> None:
    """Replace the key of a profile's log, with its witnesses shown the log before and after.

    Args:
        settings: the profile's.
        log_key: the key in force.
        new_key: the one that follows.
        new: the new key's file, for the message.

    Raises:
        typer.Exit: if it is not replaced; the reason was printed.
    """
    empty = sign(Checkpoint(settings.origin, 0, EMPTY_ROOT), log_key)
    submission = WitnessSubmission(settings.book, settings.witnesses, required=settings.witnesses_required, empty=empty)
    try:
        done = _rotated(settings, log_key, new_key, submission)
        typer.echo(
            f"Entry {done.entry} has replaced the log's key. The new key is {done.key.vkey}\n"
            f'Name it in the profile, log_key = "{new}", and start the service. Then publish the new key where the old '
            "one is published, give it to each witness, and destroy the old one.",
        )
        # Witnesses that know the old key alone cosign this one checkpoint too: both keys have signed it.
        submission.show()
    except (BookUnusable, BookPaused, FileNotFoundError, WitnessContradicts, WitnessMissing) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(getattr(error, "exit_code", Code.CONFLICT.exit_code)) from None
    finally:
        submission.close()


def _rotated(
    settings: Settings, log_key: Ed25519PrivateKey, new_key: Ed25519PrivateKey, submission: WitnessSubmission
) -> Rotated:
    old, new = (LogKey(settings.origin, key.public_key().public_bytes_raw()) for key in (log_key, new_key))
    before, after = settings.kept_file(old), settings.kept_file(new)
    return rotate_log_key(
        settings.book,
        gate=gate,
        log_key=log_key,
        new_key=new_key,
        origin=settings.origin,
        clock=unix_ms,
        watch=settings.clock_watch,
        kept=None if before is None or after is None else (before, after),
        show_first=submission.show,
    )
