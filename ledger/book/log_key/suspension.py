"""Suspending the key of a log, and resuming it: after a suspension no process records anything until that is ended."""

from __future__ import annotations

from pathlib import Path
from secrets import token_hex
from typing import NamedTuple

from ledger.book.log_key.own_entry import BookPlace


class Suspended(NamedTuple):
    """The entry that suspended or resumed a log's key, and the checkpoint over it."""

    entry: int
    note: str


def suspend_log_key(place: BookPlace, reason: str, kept: Path | None = None, *, resume: bool = False) -> Suspended:
    """Suspend the key of a log, or resume it, in one entry.

    Args:
        place: the book, and the key in force.
        reason: as the entry states it.
        kept: the file that holds the newest checkpoint; it gets that over the entry.
        resume: end the suspension.

    Raises:
        BookUnusable: as :meth:`ledger.book.book.Book.open`; for a book without an entry; if the key is suspended
            already, or is not.
        BookPaused: if the clock is not believed.
    """
    with place.opened(kept) as own:
        command = own.recorder.log_key_suspension(f"log-key-{token_hex(16)}", reason, suspended=not resume)
        what = "resumed" if resume else "suspended"
        done = Suspended(*own.record(lambda _: command, own.recorder.signer, f"the log's key cannot be {what}"))
        if kept is not None:
            own.keep(kept, done.note)
        return done
