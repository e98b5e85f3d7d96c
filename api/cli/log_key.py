"""``epsilon rotate-log-key`` and ``suspend-log-key``: entries on the key of a service's log, which none runs by."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy.exc import SQLAlchemyError

from api.cli.settings import Settings
from api.server.witness_submission import WitnessContradicts, WitnessMissing, WitnessSubmission
from ledger.book.book import BookUnusable
from ledger.book.log_key.own_entry import BookPlace
from ledger.book.log_key.rotation import Replacement, rotate_log_key
from ledger.book.log_key.suspension import suspend_log_key
from ledger.book.submitted_command import BookPaused
from ledger.book.wall_clock import unix_ms
from ledger.command_line.printable_text import say
from ledger.domain.outcomes import Code
from ledger.log.checkpoint import sign
from ledger.log.verification import open_checkpoint
from ledger.store.engine import engine_of
from ledger.store.merkle_tables import latest_checkpoint
from ledger.verifier import EMPTY_ROOT, Checkpoint, LogKey
from ledger.wire.malformed import Malformed
from policy.decisions.gate import gate


def rotate(profile: Path, settings: Settings, log_key: Ed25519PrivateKey, terms: Replacement, new: Path) -> None:
    """Replace the key of a profile's log, with its witnesses shown the log before and after.

    Args:
        profile: the profile's file.
        settings: what it says.
        log_key: the key in force.
        terms: the key that follows, and the terms.
        new: the new key's file, for the message.

    Raises:
        typer.Exit: if it is not replaced, or not all that follows was done; the reason was printed.
    """
    old, after = (LogKey(settings.origin, key.public_key().public_bytes_raw()) for key in (log_key, terms.key))
    kept = settings.kept_file(old), settings.kept_file(after)
    beside = f", and the old one beside it, old_log_key = {_named(profile, settings.log_key)}, while the window lasts"
    destroy = "destroy the old one" if terms.overlap is None else "destroy the old one after the window"
    following = (
        f"The new key is {after.vkey}\n"
        f"Name it in the profile, log_key = {_named(profile, new)}{beside if terms.overlap else ''}, and start the "
        f"service. Then publish the new key where the old one is published, give it to each witness, and {destroy}."
    )
    with _place(settings, log_key) as (place, submission):
        try:
            done = rotate_log_key(place, terms, None if kept[0] is None or kept[1] is None else (kept[0], kept[1]))
        except BookUnusable:
            # It may be recorded, and its checkpoint not kept: from then on the service starts by the new key alone.
            if _has_signed(settings.book, after):
                say(following)
            raise
        say(f"Entry {done.entry} has replaced the log's key. {following}")
        # Witnesses that know the old key alone cosign this one checkpoint too: both keys have signed it.
        submission.show()


def _named(profile: Path, file: Path) -> str:
    """A file as a profile names it: relative to the profile's folder where it lies in there, in a string of TOML."""
    home, place = profile.parent.resolve(), file.parent.resolve() / file.name
    return json.dumps(str(place.relative_to(home) if place.is_relative_to(home) else place), ensure_ascii=False)


def _has_signed(book: str, key: LogKey) -> bool:
    """Whether a key has signed the newest checkpoint of a book; False where the book cannot be read."""
    engine = engine_of(book, writes=False)
    try:
        with engine.begin() as connection:
            note = latest_checkpoint(connection)
        return note is not None and open_checkpoint(note, key).size > 0
    except (SQLAlchemyError, Malformed):
        return False
    finally:
        engine.dispose()


def suspend(settings: Settings, log_key: Ed25519PrivateKey, reason: str, *, resume: bool) -> None:
    """Suspend the key of a profile's log, or resume it, with its witnesses shown the log before and after.

    Raises:
        typer.Exit: if it is not; the reason was printed.
    """
    log = LogKey(settings.origin, log_key.public_key().public_bytes_raw())
    with _place(settings, log_key) as (place, submission):
        done = suspend_log_key(place, reason, settings.kept_file(log), resume=resume)
        say(
            f"Entry {done.entry} has {'resumed' if resume else 'suspended'} the log's key."
            + ("" if resume else " A service that is started now answers reads, and records nothing.")
        )
        submission.show()


@contextmanager
def _place(settings: Settings, log_key: Ed25519PrivateKey) -> Iterator[tuple[BookPlace, WitnessSubmission]]:
    """The profile's book, and what shows it to its witnesses. Raises: typer.Exit; the reason was printed."""
    empty = sign(Checkpoint(settings.origin, 0, EMPTY_ROOT), log_key)
    submission = WitnessSubmission(settings.book, settings.witnesses, required=settings.witnesses_required, empty=empty)
    place = BookPlace(
        url=settings.book,
        gate=gate,
        log_key=log_key,
        origin=settings.origin,
        clock=unix_ms,
        watch=settings.clock_watch,
        show_first=submission.show,
    )
    try:
        yield place, submission
    except (BookUnusable, BookPaused, FileNotFoundError, WitnessContradicts, WitnessMissing) as error:
        say(str(error), err=True)
        raise typer.Exit(getattr(error, "exit_code", Code.CONFLICT.exit_code)) from None
    finally:
        submission.close()
