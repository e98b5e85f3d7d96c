"""Replacing the key of a log, with no process that writes the book by the old key going on.

Whatever fails before the commit leaves the book under the old key. What is kept for the new key is written before the
commit, from what the old key signed, and after it: so the first start with the new key finds it, however this ended.
Where another book keeps its checkpoint for the new key, the key is not replaced: that checkpoint would be lost.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger.book.log_key.own_entry import BookPlace
from ledger.book.submitted_command import BookUnusable
from ledger.commands.context import PendingCommand
from ledger.commands.signing_keys.log_key_rotation import RevokedLogKey
from ledger.log.checkpoint import RotatingSigner
from ledger.store.snapshot import Snapshot
from ledger.verifier import LogKey


class Rotated(NamedTuple):
    """The entry that replaced a log's key, and the checkpoint that both keys signed."""

    entry: int
    key: LogKey
    note: str


class Replacement(NamedTuple):
    """The terms of a rotation.

    Attributes:
        key: the new key.
        overlap: over how many entries more the old key signs beside it; None for no window.
        stolen: a key of the log that is revoked, by its id; None for none.
        stolen_since: the time (Unix ms) from which on it may have been in wrong hands.
    """

    key: Ed25519PrivateKey
    overlap: int | None = None
    stolen: str | None = None
    stolen_since: int = 0


def rotate_log_key(place: BookPlace, new: Replacement, kept: tuple[Path, Path] | None = None) -> Rotated:
    """Replace the key of a log by another one, in one entry.

    Args:
        place: the book, and the key in force.
        new: the key that follows, and the terms.
        kept: the files that hold the newest checkpoint for the old key and for the new one; they may be the same.

    Raises:
        BookUnusable: as :meth:`ledger.book.book.Book.open`; for a book without an entry; if the new key has a use; if
            the file for the new key holds what this book never had.
        BookPaused: if the clock is not believed.
    """
    with place.opened(None if kept is None else kept[0]) as own:
        if kept is not None and kept[0] != kept[1]:
            own.hold(kept[1])
            try:
                own.keep(kept[1], own.before)
            except BookUnusable as error:
                raise BookUnusable(f"the log's key was not replaced: {error}") from None
        signer = RotatingSigner(own.recorder.signer, new.key)

        def command(reads: Snapshot) -> PendingCommand:
            revokes = None if new.stolen is None else RevokedLogKey(new.stolen, reads.first_since(new.stolen_since))
            return own.recorder.log_key_rotation(new.key, new.overlap, revokes)

        index, note = own.record(command, signer, "the log's key cannot be replaced by this one")
        done = Rotated(index, signer.key, note)
        try:
            for path in () if kept is None else kept:
                own.keep(path, done.note)
        except BookUnusable as error:
            raise BookUnusable(f"entry {index} has replaced the log's key, but {error}") from None
        return done
