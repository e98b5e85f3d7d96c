"""Backup, restore and move: a book's bytes are copied to another place, and everything else is rebuilt from them.

Receipts and kept checkpoints stay valid, since entries and notes are the same bytes under the same log key. An
interrupted operation leaves the source unchanged, and at the target a whole book or none.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from sqlalchemy import Connection, inspect
from sqlalchemy.engine import URL

from ledger.audit.replay import VerificationFailed
from ledger.files.atomic_file import new_file, sync_folder
from ledger.log import merkle
from ledger.store.merkle_tables import Tree, latest_checkpoint
from ledger.store.sqlite_file.file_lock import is_locked
from ledger.store.successor_book import Successor, record_successor, successor_of
from ledger.store.tables import SCHEMA_REVISION
from ledger.verifier import Checkpoint, LogKey
from migrations.connect.book_location import Place
from migrations.connect.errors import Absent, NotDone, SchemaUnknown
from migrations.connect.exclusive_access import (
    Limits,
    connected,
    exclusive_transaction,
    file_locked,
    refuse_leftovers,
    tables_in,
    unheld_transaction,
)
from migrations.schema.revisions import bring_to, holds_book, revision_of
from migrations.transfer.archive import Archive, write_archive
from migrations.transfer.book_contents import BookContents, fill
from migrations.transfer.log_check import Head, Step, check_trusted, head_of, refuse_older, trust_of


def back_up(place: Place, file: Path, key: LogKey | None, limits: Limits, step: Step) -> Head:
    """Write a snapshot of a whole book to a new file; the book may be written meanwhile.

    Raises:
        Absent: if there is no book, or no folder for the file.
        NotDone: if there is a file already.
        VerificationFailed: if the entries are not those of the newest checkpoint.
    """
    _require_book(place, limits)
    with _new_file(file) as part, connected(place, writes=False, limits=limits) as connection:
        revision_of(connection, place.display_name)
        trust = None if key is None else trust_of(connection, key)
        return write_archive(part, BookContents(connection), latest_checkpoint(connection), trust, step)


def restore(  # noqa: PLR0913 - each is the operator's own answer to a question of its own
    file: Path, place: Place, key: LogKey, kept: Checkpoint | None, limits: Limits, *, step: Step
) -> Head:
    """Restore a book from a backup to an empty place.

    Args:
        file: the backup.
        place: the location of the new book.
        key: the log's key, kept outside the book.
        kept: the newest checkpoint kept outside the book; a backup older than it would give budgets back, and is
            refused. None accepts that this is unknown.
        limits: how long to wait.
        step: called with how many entries are done.

    Raises:
        Malformed: if the file is not a backup. OSError: if it cannot be read.
        NotDone: if there is something at ``place``, or another process holds it.
        VerificationFailed: if the backup does not verify, is older than ``kept``, or a fork of it.
    """
    with Archive.open(file) as archive:
        if kept is not None:
            refuse_older(archive.tree_size, kept, str(file))
        with new_book(place, limits) as made:
            head = fill(made, archive, key, step)
            if (head.size, head.root.hex()) != (archive.tree_size, archive.manifest.root):
                raise VerificationFailed(None, f"{file} does not hold the entries that its manifest names")
            if kept is not None:
                check_trusted(made, kept, str(file))
    return head


def move(source: Place, target: Place, key: LogKey, limits: Limits, step: Step) -> tuple[Head, bool]:
    """Copy a book to another place, on either engine, and seal the old one permanently.

    The source is sealed once the target is verified and only its commit remains. If a move is interrupted between
    the two, repeating the same move finishes it; until then neither book accepts an entry.

    Returns:
        The head of the moved book, and whether it had been moved before.

    Raises:
        Absent: if there is no book at ``source``.
        NotDone: if there is something at ``target``, if the source was moved elsewhere before, or if another
            process writes either or, on PostgreSQL, has any session in the source.
        VerificationFailed: if the source does not verify.
    """
    if source.absolute == target.absolute:
        raise NotDone(f"{source.display_name} is where the book is already")
    _require_book(source, limits)
    before = _moved_before(source, target, limits)
    if before is not None:
        return before, True
    # The target's transaction is the outer one, so that it commits last.
    with new_book(target, limits) as made, unheld_transaction(source, limits) as old:
        successor = _successor_before(old, source, target)
        head = fill(made, BookContents(old), key, step)
        # What lies beside the target's name now is found before the source is sealed.
        refuse_leftovers(target)
        if successor is None:
            record_successor(old, Successor(target.absolute, head.size))
    return head, False


def way_on(successor: str) -> str:
    """What to do with a sealed book whose successor is not there, as sentences for a message."""
    return (
        f"If that move was interrupted, the same move again finishes it. If {successor} is lost, restore its newest "
        "backup. If no book was ever made there, 'epsilon db rescue' with --ignore-seal makes another one, and that "
        "move must then not be repeated"
    )


def _require_book(place: Place, limits: Limits) -> None:
    if not holds_book(place, limits):
        raise Absent(f"there is no book at {place.display_name}")


@contextmanager
def _new_file(path: Path) -> Iterator[Path]:
    """A name to write a new file under, durable when the block ends without an error. Raises: NotDone, Absent."""
    if not path.parent.is_dir():
        raise Absent(f"there is no folder {path.parent}")
    try:
        with new_file(path) as part:
            yield part
    except FileExistsError:
        raise NotDone(f"there is a file at {path} already, and nothing is written over") from None


@contextmanager
def new_book(place: Place, limits: Limits) -> Iterator[Connection]:
    """An empty book on a connection of its own; it is committed only if the block ends without an error.

    A new file is opened once under its name, and gone again if it is not the book that was made.

    Raises:
        NotDone: where there is something already, or beside a file's name what SQLite would read into it, or the book
            is locked.
        VerificationFailed: if the file holds something else under its name.
    """
    if place.path is None:
        with exclusive_transaction(place, limits) as connection:
            if inspect(connection).get_table_names():
                raise NotDone(f"there are tables at {place.display_name} already, and nothing is written over")
            bring_to(connection, SCHEMA_REVISION, place.display_name)
            yield connection
        return
    with file_locked(place, limits):
        with _new_file(place.path) as part:
            refuse_leftovers(place)
            with connected(Place(URL.create("sqlite", database=str(part))), writes=True, limits=limits) as connection:
                bring_to(connection, SCHEMA_REVISION, place.display_name)
                yield connection
                head = head_of(connection)
            # Closing the last connection merges the write-ahead log into the file; this does so even if another one is
            # open.
            with closing(sqlite3.connect(part)) as file:
                file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            made = part.stat()
            refuse_leftovers(place)
        _check_placed(place, head, made, limits)


def _check_placed(place: Place, head: Head, made: os.stat_result, limits: Limits) -> None:
    """Open a new file under its name, and remove it if it is not the book that was made. Raises: VerificationFailed."""
    assert place.path is not None
    try:
        check_head(place, head, limits)
    except BaseException:
        with suppress(FileNotFoundError):
            if os.path.samestat(made, place.path.lstat()):
                place.path.unlink()
                sync_folder(place.path.parent)
        raise


def check_head(place: Place, head: Head, limits: Limits) -> None:
    """Open a book under its name, and compare its head. Raises: VerificationFailed, NotDone."""
    with connected(place, writes=False, limits=limits) as connection:
        found = head_of(connection)
    if found != head:
        raise VerificationFailed(
            None,
            f"{place.display_name} holds {found.size} entries where it is opened, and {head.size} others were written: "
            "another program changed it, or left a file beside it. Find out which, then repeat the command",
        )


def _successor_before(connection: Connection, source: Place, target: Place) -> Successor | None:
    """The successor after an earlier move to this target. Raises: NotDone, if the book was moved elsewhere."""
    revision = revision_of(connection, source.display_name)
    if revision != SCHEMA_REVISION:
        raise SchemaUnknown(f"{source.display_name} is at schema {revision}: run 'epsilon db upgrade' first")
    successor = successor_of(connection)
    if successor is not None and successor.book != target.absolute:
        raise NotDone(
            f"{source.display_name} was moved to {successor.book} before: one book goes on in one place. "
            f"{way_on(successor.book)}"
        )
    return successor


@contextmanager
def _openable(place: Place, limits: Limits) -> Iterator[None]:
    """A book that a writer has open now, or that one could open: it is locked meanwhile. Raises: NotDone."""
    if place.path is not None and is_locked(place.path):
        yield
        return
    with file_locked(place, limits):
        yield


def _moved_before(source: Place, target: Place, limits: Limits) -> Head | None:
    """The head that an earlier move copied to this target, None if it did not finish. Raises: NotDone, Absent."""
    with connected(source, writes=False, limits=limits) as old:
        successor = _successor_before(old, source, target)
        if successor is None or not tables_in(target, limits):
            return None
        with _openable(target, limits), connected(target, writes=False, limits=limits) as new:
            revision_of(new, target.display_name)
            head, there = head_of(old), Tree(new)
            if there.size < successor.tree_size or merkle.root(successor.tree_size, there.read) != head.root:
                raise NotDone(f"there is something else at {target.display_name}, and nothing is written over")
    return head
