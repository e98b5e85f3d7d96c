"""Rescue: a new book of the longest sound prefix of one that cannot be opened, which stays as evidence.

A damaged book cannot be repaired in place: nothing that was written is ever changed. The new book is replayed and
verified like a restored backup. It never ends before a known head, since that would give budgets back.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import Connection
from sqlalchemy.engine import URL

from ledger.audit.replay import VerificationFailed
from ledger.store.log_key.rotation_proofs import Trust
from ledger.verifier import Checkpoint, LogKey
from migrations.connect.book_location import Place
from migrations.connect.errors import Absent, NotDone
from migrations.connect.exclusive_access import Limits, connected, exclusive_transaction, file_locked, is_held
from migrations.transfer.book_contents import fill
from migrations.transfer.book_transfer import new_book
from migrations.transfer.log_check import Head, Step
from migrations.transfer.sound_prefix import SoundPrefix, proven_keys

_FILES = ("", "-wal")
"""The files of an SQLite book that hold rows; SQLite rebuilds the third file from them."""


def rescue(  # noqa: PLR0913 - where, by which key, behind what never, and the operator's word on the seal
    source: Place,
    target: Place,
    key: LogKey,
    heads: Callable[[Trust], Mapping[str, Checkpoint]],
    limits: Limits,
    *,
    ignore_seal: bool,
    step: Step,
) -> tuple[Head, SoundPrefix]:
    """Build a book from the longest sound prefix of a damaged one.

    Args:
        source: the book that cannot be opened; it is read, and not changed.
        target: the location of the new book.
        key: the log's key, kept outside the book.
        heads: gives the checkpoints of this log kept outside the book, by their names in messages, for the keys that
            the log has or had.
        limits: how long to wait.
        ignore_seal: whether a book is rescued although its seal states that it was moved.
        step: called with how many entries are done.

    Returns:
        The head of the new book, and what was taken and left out.

    Raises:
        Absent: if there is no book at ``source``.
        NotDone: if there is something at ``target``, the book was moved, or another process has it open.
        VerificationFailed: if nothing of it is sound, or the sound prefix is behind one of the heads or a fork of it.
    """
    with _evidence(source, limits) as connection:
        kept = heads(proven_keys(connection, key))
        prefix = SoundPrefix(connection, key)
        if prefix.successor is not None and not ignore_seal:
            raise NotDone(
                f"{source.display_name} states that it was moved to {prefix.successor}, and continues there. If it was "
                "never moved, its seal is forged: rescue it with --ignore-seal"
            )
        trusted = {**kept, **({"what a witness cosigned": prefix.cosigned} if prefix.cosigned is not None else {})}
        while True:
            _check_heads(prefix, trusted, source.display_name)
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


@contextmanager
def _evidence(source: Place, limits: Limits) -> Iterator[Connection]:
    """A connection that reads a book without changing a byte of its files. Raises: Absent, NotDone."""
    if source.path is None:
        with exclusive_transaction(source, limits) as connection:
            # The lock of the log is held for a batch only: a service without one now would go on in this book.
            if is_held(source, connection):
                raise NotDone(
                    f"another process has the database of {source.display_name} open: stop it first, or two books "
                    "would spend one budget"
                )
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
