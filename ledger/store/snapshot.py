"""A snapshot of a book: its entries, their proofs, and the state that they make, as one transaction sees them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sqlalchemy import bindparam, select, text

from ledger.commands.entry import Entry
from ledger.log.checkpoint import receipt
from ledger.log.tiles import Tile, tile_bytes
from ledger.store.database_state import DatabaseState
from ledger.store.engine import Executor
from ledger.store.merkle_tables import Tree, entry_bytes, latest_checkpoint
from ledger.store.tables import ENTRY

_NAMED: Final = select(ENTRY.c.position).where(ENTRY.c.id == bindparam("id"))
_SINCE: Final = select(ENTRY.c.position).where(ENTRY.c.time >= bindparam("time")).order_by(ENTRY.c.position).limit(1)
_UNTIL: Final = (
    select(ENTRY.c.position).where(ENTRY.c.time <= bindparam("time")).order_by(ENTRY.c.position.desc()).limit(1)
)
_BYTES: Final = {
    "postgresql": text("SELECT pg_database_size(current_database())"),
    "sqlite": text("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"),
}
_FEW: Final = 16
"""Entries that are read at once where the first may do."""
_PAGE: Final = 4_000


class Log:
    """The entries and proofs of a log at one size, as one transaction sees them."""

    def __init__(self, connection: Executor, size: int | None = None) -> None:
        """Read through ``connection``; the whole log, or its first ``size`` entries."""
        self.connection = connection
        self.tree = Tree(connection, size)
        self._time: tuple[int, int] | None = None

    @property
    def size(self) -> int:
        """How many entries there are."""
        return self.tree.size

    @property
    def root(self) -> bytes:
        """The root hash of the tree."""
        return self.tree.root()

    def root_at(self, size: int) -> bytes:
        """The root hash of the first ``size`` entries. Raises: KeyError, if there are not so many."""
        return self.tree.root_at(size)

    @property
    def time(self) -> int:
        """The least time (ms) of the next entry, 0 for an empty book; read once for each size."""
        size = self.size
        if self._time is None or self._time[0] != size:
            self._time = size, Entry.parse(self.entry(size - 1)).time_after if size else 0
        return self._time[1]

    def entry(self, index: int) -> bytes:
        """The exact bytes of an entry. Raises: KeyError."""
        if index >= self.size:
            raise KeyError(index)
        return entry_bytes(self.connection, index)

    def entries(self, start: int, stop: int) -> list[bytes]:
        """The exact bytes of the entries from one index up to another; fewer, if there are fewer."""
        within = ENTRY.c.position >= start, ENTRY.c.position < min(stop, self.size)
        chosen = select(ENTRY.c.data).where(*within).order_by(ENTRY.c.position)
        return [bytes(data) for data in self.connection.execute(chosen).scalars()]

    def entries_of(self, kinds: Sequence[str], start: int) -> Iterator[tuple[int, bytes]]:
        """The indexes and exact bytes of the entries of some kinds, in order, from one index on; read a few at once."""
        found = [(start - 1, b"")]
        while found:
            within = ENTRY.c.position > found[-1][0], ENTRY.c.position < self.size, ENTRY.c.kind.in_(kinds)
            chosen = select(ENTRY.c.position, ENTRY.c.data).where(*within).order_by(ENTRY.c.position).limit(_FEW)
            found = [(int(index), bytes(data)) for index, data in self.connection.execute(chosen)]
            yield from found

    def __iter__(self) -> Iterator[bytes]:
        """The exact bytes of every entry, read some thousands at a time. Raises: KeyError, where one is missing."""
        for start in range(0, self.size, _PAGE):
            found = self.entries(start, start + _PAGE)
            if len(found) != min(_PAGE, self.size - start):
                raise KeyError(start)
            yield from found

    def newest_of(
        self, kinds: Sequence[str], start: int, most: int, before: int | None = None
    ) -> list[tuple[int, bytes]]:
        """The newest entries of some kinds, newest first, with their indexes and exact bytes.

        Args:
            kinds: all kinds where it is empty.
            start: the first index that is looked at.
            before: the index to stop at; the size if it is not given.
        """
        within = [ENTRY.c.position >= start, ENTRY.c.position < (self.size if before is None else before)]
        within += [ENTRY.c.kind.in_(kinds)] if kinds else []
        chosen = select(ENTRY.c.position, ENTRY.c.data).where(*within).order_by(ENTRY.c.position.desc()).limit(most)
        return [(int(index), bytes(data)) for index, data in self.connection.execute(chosen)]

    def times(self, indexes: Sequence[int]) -> dict[int, int]:
        """The times (ms) of some entries by their indexes, in one statement; at most a few hundred."""
        chosen = select(ENTRY.c.position, ENTRY.c.time).where(ENTRY.c.position.in_(indexes))
        return {int(index): int(time) for index, time in self.connection.execute(chosen)}

    def entry_index(self, command_id: str) -> int | None:
        """The index of a command's entry, None if there is none."""
        found = self.connection.execute(_NAMED, {"id": command_id}).scalar()
        return None if found is None or found >= self.size else int(found)

    def first_since(self, time: int) -> int:
        """The index of the first entry at or after a time (ms), the size if there is none.

        After a clock correction a later entry may bear an earlier time.
        """
        found = self.connection.execute(_SINCE, {"time": time}).scalar()
        return self.size if found is None else min(int(found), self.size)

    def size_at(self, time: int) -> int:
        """How many entries lie before and at the last one of a time (ms) or earlier, 0 if there is none."""
        found = self.connection.execute(_UNTIL, {"time": time}).scalar()
        return 0 if found is None else min(int(found) + 1, self.size)

    @property
    def checkpoint(self) -> str:
        """The signed checkpoint of the log at this size. Raises: KeyError, for an empty book."""
        note = latest_checkpoint(self.connection)
        if note is None:
            raise KeyError("checkpoint")
        return note

    def tile(self, tile: Tile) -> bytes:
        """What C2SP tlog-tiles serves at the tile's path. Raises: KeyError, if the log has not so many entries."""
        return tile_bytes(tile, self.size, self.tree.hashes, self.entries)

    @property
    def stored_bytes(self) -> int:
        """The size of the database, in bytes; of SQLite its main file, without the write-ahead log beside it."""
        return int(self.connection.execute(_BYTES[self.connection.dialect.name]).scalar() or 0)

    def receipt(self, index: int) -> str:
        """The entry's inclusion proof under the checkpoint. Raises: KeyError."""
        if not 0 <= index < self.size:
            raise KeyError(index)
        return receipt(index, self.tree.proof(index), self.checkpoint)

    def consistency(self, old: int) -> list[bytes]:
        """That the first ``old`` entries are the first of these (RFC 9162, 2.1.4). Raises: KeyError."""
        if not 0 < old <= self.size:
            raise KeyError(old)
        return self.tree.consistency(old)


class Snapshot(Log, DatabaseState):
    """Facts and entries as of the transaction that this snapshot was taken in."""

    def __init__(self, connection: Executor) -> None:
        """Read through ``connection``."""
        Log.__init__(self, connection)
        DatabaseState.__init__(self, connection)
