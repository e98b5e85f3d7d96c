"""Publishing a book as a folder of static files (C2SP tlog-tiles) that any web server can serve.

The checkpoint is replaced last, when all that it names is on the disk: a reader of it finds the rest. An
interrupted publication is continued from the size of the folder's own checkpoint.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ledger.files.atomic_file import SHARED, replace_file
from ledger.log.tiles import Tile, tiles_of
from ledger.log.verification import open_checkpoint, to_text
from ledger.store.cosignatures import cosigned_checkpoint
from ledger.store.log_key.rotation_proofs import Trust, all_rotations, trusted
from ledger.store.snapshot import Log
from ledger.verifier import NOTE_BYTES_MAX, ROTATIONS, TILE_WIDTH, LogKey, Policy
from ledger.wire.malformed import Malformed

Step = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Publication:
    """A folder's state: how many entries it holds, and how many files this publication wrote."""

    entries: int
    files: int


def publish(book: Log, folder: Path, key: LogKey, step: Step) -> Publication:
    """Write what the folder lacks of the book.

    Args:
        book: the log, at one size.
        folder: where the log is published; created if it does not exist.
        key: a public key that the log has or had; the folder's own checkpoint must be signed with one of them.
        step: called with the number of files done, and of all.

    Raises:
        Malformed: if the folder holds another log, or more of this one than the book has, or another history, or
            is being published already.
        OSError: if something cannot be written; then the folder still publishes what it published before.
    """
    trust = trusted(book.connection, key)
    open_checkpoint(book.checkpoint, trust)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        before = _published_size(book, folder, trust)
        due = [tile for tile in tiles_of(book.size) if not _is_there(folder, tile, before)]
        for done, tile in enumerate(due, 1):
            path = folder / tile.path
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, book.tile(tile), mode=SHARED, durable=False)
            step(done, len(due))
        if isinstance(trust, Policy):
            replace_file(folder / ROTATIONS, all_rotations(book.connection).encode(), mode=SHARED)
        # One call for all of them: the checkpoint must not outlive a power loss that its tiles do not.
        os.sync()
        replace_file(folder / "checkpoint", cosigned_checkpoint(book.connection, book.size).encode(), mode=SHARED)
        _remove_superseded(folder, before, book.size)
    return Publication(book.size, len(due))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One publication at a time: a slower one would put an older checkpoint over a newer. Ends with the process."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Malformed("folder", "is being written by another 'epsilon publish'") from None
        yield
    finally:
        os.close(lock)


def _published_size(book: Log, folder: Path, trust: Trust) -> int:
    """How many entries the folder publishes, if they are the first ones of this very book."""
    try:
        with (folder / "checkpoint").open("rb") as file:
            note = to_text(file.read(NOTE_BYTES_MAX + 1), "checkpoint")
    except FileNotFoundError:
        return 0
    there = open_checkpoint(note, trust)
    if there.size > book.size:
        raise Malformed("folder", f"publishes {there.size} entries and the book has {book.size}: the book is older")
    if there.root != book.root_at(there.size):
        raise Malformed("folder", f"publishes another history: its first {there.size} entries are not the book's")
    return there.size


def _is_there(folder: Path, tile: Tile, before: int) -> bool:
    """Whether an earlier publication wrote this file whole; a file that an interrupted one left is written again."""
    finished = (tile.index + 1) * TILE_WIDTH ** ((tile.level or 0) + 1) <= before
    return finished and tile.width == TILE_WIDTH and (folder / tile.path).is_file()


def _remove_superseded(folder: Path, before: int, size: int) -> None:
    """Partial tiles of earlier checkpoints whose full tile is published now."""
    for tile in tiles_of(before):
        if tile.width < TILE_WIDTH and (tile.index + 1) * TILE_WIDTH ** ((tile.level or 0) + 1) <= size:
            shutil.rmtree((folder / tile.path).parent, ignore_errors=True)
