"""The seal of a book that was moved: it stays readable and verifiable, and takes no more entries.

The row is written once, by ``epsilon db move``; a trigger refuses every entry after it, whichever program writes.
Without it two books under one log key could continue from the same entry, and each could spend the remaining budget.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from ledger.log.verification_findings import Broken
from ledger.store.engine import Executor
from ledger.store.table_mapping import append_rows
from ledger.store.tables import SEAL


@dataclass(frozen=True, slots=True)
class Seal:
    """The book that continues this one, and how many entries it was moved with."""

    successor: str
    tree_size: int


def seal_of(connection: Executor) -> Seal | None:
    """The seal of a book, None while it takes entries."""
    table = SEAL
    found = connection.execute(select(table.c.successor, table.c.tree_size)).one_or_none()
    return None if found is None else Seal(str(found[0]), int(found[1]))


def check_seal(connection: Executor, size: int) -> str | None:
    """Where a book of so many entries says that it goes on; None while it takes entries.

    The seal is not an entry and is not signed: only the size that it records can be compared with the log.

    Raises:
        Broken: if that is not the book's, since no entry follows a seal.
    """
    seal = seal_of(connection)
    if seal is not None and seal.tree_size != size:
        raise Broken(None, f"the seal is over {seal.tree_size} entries; the book has {size}")
    return None if seal is None else seal.successor


def put_seal(connection: Executor, seal: Seal) -> None:
    """Seal a book, for ever. Raises: sqlalchemy.exc.IntegrityError, if it is sealed already."""
    append_rows(connection, SEAL, [{"position": 0, "successor": seal.successor, "tree_size": seal.tree_size}])
