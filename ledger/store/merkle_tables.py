"""The Merkle tree of a book in its database: nodes are read by key, and appended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Final, NamedTuple

from sqlalchemy import Connection, TextClause, bindparam, func, select, text

from ledger.log import merkle
from ledger.store.engine import HOLD_S, WRITE_LOCK, Executor, limits_transactions, run_plainly
from ledger.store.projection_table import append_rows
from ledger.store.tables import CHECKPOINT, ENTRY, TREE_NODE
from ledger.verifier import leaf_hash

# Made once: making a statement costs more than SQLite takes to answer it.
_NODE: Final = select(TREE_NODE.c.hash).where(
    TREE_NODE.c.level == bindparam("level"), TREE_NODE.c.position == bindparam("position")
)
_PAGE: Final = 1_000
_PAGE_FROM: Final = (
    select(ENTRY.c.position, ENTRY.c.data)
    .where(ENTRY.c.position >= bindparam("start"))
    .order_by(ENTRY.c.position)
    .limit(_PAGE)
)
_OF_KIND: Final = (
    select(ENTRY.c.position, ENTRY.c.data).where(ENTRY.c.kind == bindparam("kind")).order_by(ENTRY.c.position)
)
_LAST: Final = select(func.max(ENTRY.c.position))
_ENTRY_DATA: Final = select(ENTRY.c.data).where(ENTRY.c.position == bindparam("position"))
_AT: Final = select(ENTRY.c.position, ENTRY.c.data).where(ENTRY.c.position.in_(bindparam("positions", expanding=True)))
_BETWEEN: Final = (
    select(ENTRY.c.position, ENTRY.c.data)
    .where(ENTRY.c.position.between(bindparam("first"), bindparam("last")))
    .order_by(ENTRY.c.position)
)
_TOGETHER: Final = 256
"""Rows that one statement names by their keys; SQLite takes no more than 500 parts of a union."""
_REPEATED: Final = (
    select(ENTRY.c.id, func.max(ENTRY.c.position))
    .group_by(ENTRY.c.id)
    .having(func.count() > 1)
    .order_by(func.min(ENTRY.c.position))
    .limit(1)
)
_NEWEST: Final = select(CHECKPOINT.c.note).order_by(CHECKPOINT.c.tree_size.desc()).limit(1)
_LIMIT: Final = "(SELECT set_config('transaction_timeout', %s, true))"
_NO_LIMIT: Final = "(SELECT %s::text)"
_TAIL: Final = (
    "(SELECT version_num FROM alembic_version), (SELECT successor FROM seal), "
    "(SELECT note FROM checkpoint ORDER BY tree_size DESC LIMIT 1), "
    "lacking.* FROM (VALUES (1)) AS one LEFT JOIN "
    "(SELECT position, data FROM entry WHERE position >= %s ORDER BY position LIMIT %s) AS lacking ON true "
    "ORDER BY position"
)
"""What a process must know before it appends, in every row, and the entries that it lacks, one in each row."""


@cache
def _nodes(how_many: int) -> TextClause:
    """So many nodes by key; a list of pairs with IN would make SQLite read the whole table."""
    one = "SELECT level, position, hash FROM tree_node WHERE level = :l{0} AND position = :p{0}"
    return text(" UNION ALL ".join(one.format(at) for at in range(how_many)))


class Tree:
    """The tree as one transaction sees it."""

    def __init__(
        self, connection: Executor, size: int | None = None, known: Mapping[tuple[int, int], bytes] | None = None
    ) -> None:
        """Its size is one more than the last position, since entries leave no gap; or ``size``, for an earlier one.

        Args:
            connection: reads what is not known, and writes what is new.
            size: how many entries the tree covers.
            known: hashes that need not be read, by level and position.
        """
        self.connection = connection
        self._nodes = {**(known or {})}
        self._new: list[tuple[int, int, bytes]] = []
        self._border: dict[int, bytes] = {}
        self.size = log_size(connection) if size is None else size

    def append(self, entry: bytes) -> None:
        """Add a leaf."""
        self.add(merkle.append(self.size, leaf_hash(entry), self.read))

    def add(self, completed: Iterable[tuple[int, int, bytes]]) -> None:
        """Add a leaf by the nodes that it completes (level, position, hash), itself first."""
        for level, position, value in completed:
            self._nodes[level, position] = value
            self._new.append((level, position, value))
        self._border.clear()
        self.size += 1

    def read(self, level: int, position: int) -> bytes:
        """The hash of a complete subtree. Raises: KeyError, if the book lacks it."""
        known = self._nodes.get((level, position))
        if known is None:
            found = self.connection.execute(_NODE, {"level": level, "position": position}).scalar()
            if found is None:
                raise KeyError((level, position))
            known = self._nodes[level, position] = bytes(found)
        return known

    def root(self) -> bytes:
        """The root at the present size."""
        return merkle.root(self.size, self.read)

    def root_at(self, size: int) -> bytes:
        """The root at an earlier size. Raises: KeyError, if the tree has not grown so far."""
        if not 0 <= size <= self.size:
            raise KeyError(size)
        return merkle.root(size, self.read)

    def consistency(self, old: int) -> list[bytes]:
        """The proof that this tree extends an earlier one. Raises: ValueError, unless 0 < old <= size."""
        return merkle.consistency_proof(old, self.size, self.read)

    def proof(self, index: int) -> list[bytes]:
        """The inclusion proof of an entry at the present size; its nodes are read in one statement."""
        return self.proofs([index])[0]

    def proofs(self, indexes: Sequence[int]) -> list[list[bytes]]:
        """The inclusion proofs of entries at the present size, all their nodes read together."""
        with suppress(KeyError):
            return [merkle.inclusion_proof(one, self.size, self._known, self._border) for one in indexes]
        wanted: dict[tuple[int, int], bytes] = {}
        for index in indexes:
            merkle.inclusion_proof(index, self.size, lambda level, place: wanted.setdefault((level, place), b""))
        missing = [place for place in wanted if place not in self._nodes]
        for start in range(0, len(missing), _TOGETHER):
            some = missing[start : start + _TOGETHER]
            named = {f"l{at}": level for at, (level, _) in enumerate(some)}
            named |= {f"p{at}": place for at, (_, place) in enumerate(some)}
            for row in self.connection.execute(_nodes(len(some)), named).mappings():
                self._nodes[int(row["level"]), int(row["position"])] = bytes(row["hash"])
        return [merkle.inclusion_proof(index, self.size, self.read) for index in indexes]

    def hashes(self, level: int, start: int, stop: int) -> list[bytes]:
        """The stored hashes of the complete subtrees of a level, from one position up to another."""
        within = TREE_NODE.c.level == level, TREE_NODE.c.position >= start, TREE_NODE.c.position < stop
        chosen = select(TREE_NODE.c.hash).where(*within).order_by(TREE_NODE.c.position)
        return [bytes(value) for value in self.connection.execute(chosen).scalars()]

    def _known(self, level: int, position: int) -> bytes:
        return self._nodes[level, position]

    @property
    def added(self) -> Sequence[tuple[int, int, bytes]]:
        """The nodes (level, position, hash) that are new and not yet written."""
        return self._new

    def know(self, nodes: Iterable[tuple[int, int, bytes]]) -> None:
        """Take nodes (level, position, hash) as they are: others write them."""
        self._nodes |= {(level, position): value for level, position, value in nodes}

    def flush(self) -> None:
        """Write the new nodes."""
        rows = [{"level": level, "position": place, "hash": value} for level, place, value in self._new]
        append_rows(self.connection, TREE_NODE, rows)
        self._new.clear()


def log_size(connection: Executor) -> int:
    """How many entries there are, in one step of the index."""
    last = connection.execute(_LAST).scalar()
    return 0 if last is None else int(last) + 1


def appended(connection: Connection) -> int:
    """The same, for a caller that commits: within a transaction that writes."""
    ((last,),) = run_plainly(connection, "SELECT max(position) FROM entry")
    return 0 if last is None else int(last) + 1


def latest_checkpoint(connection: Executor) -> str | None:
    """The newest signed checkpoint, None for an empty book."""
    found = connection.execute(_NEWEST).scalar()
    return None if found is None else str(found)


class LogTail(NamedTuple):
    """What a process must know before it appends, read under the lock of the log.

    Attributes:
        revision: of the schema.
        entries: the indexes and exact bytes of the first thousand entries from one index on.
        note: the newest signed checkpoint, None for an empty book.
        successor: the book that continues this one, None while it takes entries.
    """

    revision: str
    entries: list[tuple[int, bytes]]
    note: str | None
    successor: str | None

    def all_entries(self, connection: Executor) -> Iterator[tuple[int, bytes]]:
        """The entries, and those after them where there are more than a thousand."""
        yield from self.entries
        if len(self.entries) == _PAGE:
            yield from entries_from(connection, self.entries[-1][0] + 1)


def lock_and_read(connection: Connection, start: int) -> LogTail:
    """Wait until no other PostgreSQL process appends, and read what the log has from an index on.

    The statement after the lock sees all that was appended before. Neither is sent in a pipeline: the server ends the
    session of a process that stalls under the lock, before or after it reads.
    """
    run_plainly(connection, "SELECT pg_advisory_xact_lock(%s)", (WRITE_LOCK,))
    limit = _LIMIT if limits_transactions(connection) else _NO_LIMIT
    found = run_plainly(connection, f"SELECT {limit}, {_TAIL}", (f"{HOLD_S}s", start, _PAGE))
    _, revision, successor, note = found[0][:4]
    entries = [(int(index), bytes(data)) for *_, index, data in found if data is not None]
    noted, moved = (None if one is None else str(one) for one in (note, successor))
    return LogTail(str(revision), entries, noted, moved)


def entry_bytes(connection: Executor, index: int) -> bytes:
    """The exact bytes of an entry. Raises: KeyError."""
    found = connection.execute(_ENTRY_DATA, {"position": index}).scalar()
    if found is None:
        raise KeyError(index)
    return bytes(found)


def entries_at(connection: Executor, positions: Sequence[int]) -> dict[int, bytes]:
    """The exact bytes of entries by their positions; one that is missing is left out."""
    found: dict[int, bytes] = {}
    for start in range(0, len(positions), _TOGETHER):
        some = positions[start : start + _TOGETHER]
        found |= {int(at): bytes(data) for at, data in connection.execute(_AT, {"positions": some})}
    return found


def entries_between(connection: Executor, first: int, before: int) -> list[tuple[int, bytes]]:
    """The indexes and exact bytes of the entries from one index up to another, in one statement."""
    within = {"first": first, "last": before - 1}
    return [(int(index), bytes(data)) for index, data in connection.execute(_BETWEEN, within)]


def entries_of_kind(connection: Executor, kind: str) -> list[tuple[int, bytes]]:
    """The indexes and exact bytes of the entries that are stored as of a kind."""
    return [(int(index), bytes(data)) for index, data in connection.execute(_OF_KIND, {"kind": kind})]


def repeated_id(connection: Executor) -> tuple[str, int] | None:
    """The first id that several entries are stored under, and the index of the last of these; None if there is none."""
    found = connection.execute(_REPEATED).first()
    return None if found is None else (str(found[0]), int(found[1]))


def entries_from(connection: Executor, start: int) -> Iterator[tuple[int, bytes]]:
    """The indexes and exact bytes of the entries from one index on, read a thousand at a time."""
    while True:
        some = connection.execute(_PAGE_FROM, {"start": start}).all()
        yield from ((int(index), bytes(data)) for index, data in some)
        if len(some) < _PAGE:
            return
        start = int(some[-1][0]) + 1
