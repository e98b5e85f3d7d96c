"""The successor of a book that was moved: a book that has one stays readable, and takes no more entries.

The row is written once, by ``epsilon db move``; a trigger refuses every entry after it, whichever program writes.
Without it two books under one log key could continue from the same entry, and each could spend the remaining budget.

A move has no private key, so the row is not signed, and anyone who owns the database can forge one. It is believed all
the same: to doubt a true one would give a budget back, and a forged one only stops the book until it is rescued.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from ledger.log.verification_findings import VerificationFailed
from ledger.store.engine import Executor
from ledger.store.projection_table import append_rows
from ledger.store.schema_revision import BookUnusable
from ledger.store.tables import SEAL


@dataclass(frozen=True, slots=True)
class Successor:
    """The book that continues this one, and how many entries it was moved with."""

    book: str
    tree_size: int


def successor_of(connection: Executor) -> Successor | None:
    """The successor of a book, None while it takes entries."""
    found = connection.execute(select(SEAL.c.successor, SEAL.c.tree_size)).one_or_none()
    return None if found is None else Successor(str(found[0]), int(found[1]))


def check_unmoved(successor: str | None) -> None:
    """Check that a book that names this successor takes entries. Raises: BookUnusable, if it was moved."""
    if successor is not None:
        raise BookUnusable(
            f"the book was moved to {successor}, and goes on there. If that move was interrupted, the same "
            "'epsilon db move' again finishes it. The seal is not signed: if no book was ever made there, make a new "
            "one of this with 'epsilon db rescue --ignore-seal'"
        )


def check_successor(connection: Executor, size: int) -> str | None:
    """The successor that a book of so many entries names; None while it takes entries.

    The row is not an entry and is not signed: only the size in it can be compared with the log.

    Raises:
        VerificationFailed: if that is not the book's, since no entry follows the row.
    """
    found = successor_of(connection)
    if found is not None and found.tree_size != size:
        raise VerificationFailed(None, f"the seal is over {found.tree_size} entries; the book has {size}")
    return None if found is None else found.book


def record_successor(connection: Executor, successor: Successor) -> None:
    """End a book, for ever. Raises: sqlalchemy.exc.IntegrityError, if it has a successor already."""
    append_rows(connection, SEAL, [{"position": 0, "successor": successor.book, "tree_size": successor.tree_size}])
