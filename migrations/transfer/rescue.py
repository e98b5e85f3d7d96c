"""Rescue: a new book of the longest sound prefix of one that cannot be opened, which stays as evidence.

A damaged book cannot be repaired in place: nothing that was written is ever changed. The new book is replayed and
verified like a restored backup. It never ends before a known head, since that would give budgets back.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import Connection
from sqlalchemy.engine import URL

from ledger.audit.replay import VerificationFailed
from ledger.verifier import Checkpoint, LogKey
from migrations.connect.book_location import Place
from migrations.connect.errors import Absent, NotDone
from migrations.connect.exclusive_access import Limits, connected, file_locked, unheld_transaction
from migrations.transfer.book_contents import fill
from migrations.transfer.book_transfer import new_book, way_on
from migrations.transfer.later_keys import LogKeys, keys_in
from migrations.transfer.log_check import Head, Step
from migrations.transfer.sound_prefix import SoundPrefix


@dataclass(frozen=True, slots=True)
class KnownHeads:
    """What was kept outside a book, by its names in messages.

    Attributes:
        proven: checkpoints by keys of the log.
        unproven: the sizes of those of a log of the same name, by other keys.
    """

    proven: Mapping[str, Checkpoint]
    unproven: Mapping[str, int]


_FILES = ("", "-wal")
"""The files of an SQLite book that hold rows; SQLite rebuilds the third file from them."""


def rescue(  # noqa: PLR0913 - where, by which key, behind what never, and the operator's word on the seal
    source: Place,
    target: Place,
    key: LogKey,
    heads: Callable[[LogKeys], KnownHeads],
    limits: Limits,
    *,
    ignore_seal: bool,
    ignore_unproven: bool,
    step: Step,
) -> tuple[Head, SoundPrefix]:
    """Build a book from the longest sound prefix of a damaged one.

    Args:
        source: the book that cannot be opened; it is read, and not changed.
        target: the location of the new book.
        key: the log's key, kept outside the book.
        heads: gives what was kept outside the book, for the keys that the log has or had.
        limits: how long to wait.
        ignore_seal: whether a book is rescued although its seal states that it was moved: the operator states that no
            book was made there, and that none will be.
        ignore_unproven: whether it is accepted that the log may have gone on under a key that the book does not prove.
        step: called with how many entries are done.

    Returns:
        The head of the new book, and what was taken and left out.

    Raises:
        Absent: if there is no book at ``source``.
        NotDone: if there is something at ``target``, the book was moved, or another process has it open.
        VerificationFailed: if nothing of it is sound, or the sound prefix is behind one of the heads or a fork of it,
            or, unless that is ignored, may be behind one.
    """
    with _evidence(source, limits) as connection:
        keys = keys_in(connection, key)
        kept = heads(keys)
        prefix = SoundPrefix(connection, keys)
        if prefix.successor is not None and not ignore_seal:
            raise NotDone(
                f"{source.display_name} states that it was moved to {prefix.successor}, and continues there. "
                f"{way_on(prefix.successor)}"
            )
        trusted = {
            **kept.proven,
            **({"what a witness cosigned": prefix.cosigned} if prefix.cosigned is not None else {}),
        }
        while True:
            _check_heads(prefix, trusted, source.display_name)
            if not ignore_unproven:
                _check_unproven(prefix, kept.unproven, source.display_name)
            try:
                with new_book(target, limits) as made:
                    return fill(made, prefix, key, step), prefix
            except VerificationFailed as error:
                if error.index is None or error.index >= prefix.tree_size:
                    raise
                prefix.shorten(error.index, str(error))


def _check_heads(prefix: SoundPrefix, heads: Mapping[str, Checkpoint], name: str) -> None:
    """Raises: VerificationFailed, if nothing is sound, or a head has entries that the prefix lacks."""
    if not prefix.tree_size:
        raise VerificationFailed(None, f"no entry of {name} is sound and under a checkpoint ({prefix.reason})")
    for called, head in heads.items():
        if head.size > prefix.tree_size:
            raise VerificationFailed(
                None,
                f"the first {prefix.tree_size} entries of {name} are sound ({prefix.reason}), and {called} is a "
                f"checkpoint of {head.size}: a book of the first would give back budgets spent since. Find a copy of "
                "the book that holds them, or a backup",
            )
        if head.size and prefix.root_at(head.size) != head.root:
            raise VerificationFailed(
                None, f"the first {head.size} entries of {name} are not those of the checkpoint that {called} is"
            )


def _check_unproven(prefix: SoundPrefix, sizes: Mapping[str, int], name: str) -> None:
    """Raises: VerificationFailed, if the log may have gone on after the prefix under a key that the book lacks."""
    accept = "or give --without-kept, to accept that budgets spent since may be given back"
    if prefix.keys.unproven is not None:
        raise VerificationFailed(
            None,
            f"entry {prefix.keys.unproven} of {name} replaces the log's key, and the book does not prove it: what the "
            f"later key signed is unknown, and {prefix.tree_size} entries are sound ({prefix.reason}). Find a copy of "
            f"the book that proves it, or a backup, {accept}",
        )
    for called, size in sizes.items():
        if size > prefix.tree_size:
            raise VerificationFailed(
                None,
                f"the first {prefix.tree_size} entries of {name} are sound ({prefix.reason}), and {called} is a "
                f"checkpoint of {size} entries of a log of this name, by a key that the book does not have. If the "
                f"log's key was replaced, find a copy of the book that holds that, {accept}",
            )


@contextmanager
def _evidence(source: Place, limits: Limits) -> Iterator[Connection]:
    """A connection that reads a book without changing a byte of its files. Raises: Absent, NotDone."""
    if source.path is None:
        with unheld_transaction(source, limits) as connection:
            yield connection
        return
    if not source.path.is_file():
        raise Absent(f"there is no book at {source.display_name}")
    # SQLite may write a file even to read it: it reads a copy.
    with file_locked(source, limits), TemporaryDirectory(prefix="epsilon-rescue-") as folder:
        copy = Path(folder) / "book.sqlite"
        for end in _FILES:
            beside = Path(f"{source.path}{end}")
            if beside.is_file():
                shutil.copyfile(beside, f"{copy}{end}")
        with connected(Place(URL.create("sqlite", database=str(copy))), writes=False, limits=limits) as connection:
            yield connection
