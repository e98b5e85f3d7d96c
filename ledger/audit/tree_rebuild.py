"""The Merkle tree rebuilt, chunk by chunk, against the stored nodes and every checkpoint; only its edge is held."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, func, select

from ledger.log import merkle
from ledger.log.verification import open_checkpoint
from ledger.log.verification_findings import VerificationFailed
from ledger.store.log_key.rotation_proofs import Trust
from ledger.store.snapshot import Snapshot
from ledger.store.tables import CHECKPOINT, TREE_NODE
from ledger.verifier import Checkpoint
from ledger.wire.malformed import Malformed

_WITHIN: Final = (
    TREE_NODE.c.level == bindparam("level"),
    TREE_NODE.c.position.between(bindparam("first"), bindparam("last")),
)
# Made once: making a statement costs more than SQLite takes to answer it.
_NODES: Final = select(TREE_NODE.c.level, TREE_NODE.c.position, TREE_NODE.c.hash).where(*_WITHIN)


class TreeRebuild:
    """The tree of the entries so far: the newest complete node of each level."""

    def __init__(self, book: Snapshot, trust: Trust) -> None:
        """Of nothing."""
        self._book, self._trust = book, trust
        self._edge: dict[int, bytes] = {}
        self._nodes = 0
        self.size = 0
        self.newest: Checkpoint | None = None

    def grow(self, leaves: list[bytes]) -> None:
        """Append leaf hashes. Raises: VerificationFailed, for the first node or checkpoint that is not theirs."""
        made = merkle.extend(self.size, leaves, self._edge)

        def read(level: int, position: int) -> bytes:
            # A root at one of these sizes has no node that is older than the edge.
            first, values = made[level] if level < len(made) else (position + 1, [])
            return values[position - first] if position >= first else self._edge[level]

        notes = self._notes(self.size, self.size + len(leaves))
        roots = {size: merkle.root(size, read) for size in notes}
        for level, (first, values) in enumerate(made):
            self._check(level, first, values)
            self._nodes += len(values)
            self._edge[level] = values[-1]
        self.size += len(leaves)
        for size, note in notes.items():
            self.newest = self._check_checkpoint(size, note, roots[size])

    def check_leaves(self, leaves: list[bytes]) -> None:
        """Check the stored hashes of the next entries. Raises: VerificationFailed, for the first that differs."""
        self._check(0, self.size, leaves)

    def finish(self) -> Checkpoint | None:
        """The newest checkpoint, which covers all entries; None for a book without entries.

        Raises:
            VerificationFailed: for what is stored beyond the entries too.
        """
        stored = self._book.connection.execute(select(func.count()).select_from(TREE_NODE)).scalar_one()
        if stored != self._nodes:
            self._find_beyond()
        beyond = self._notes(self.size, None)
        for size in beyond:
            raise VerificationFailed(None, f"checkpoint at {size} claims {size} entries; the book has {self.size}")
        if self.size and (self.newest is None or self.newest.size != self.size):
            raise VerificationFailed(None, "the newest entries are under no checkpoint")
        return self.newest

    def _check(self, level: int, first: int, values: list[bytes]) -> None:
        within = {"level": level, "first": first, "last": first + len(values) - 1}
        result = self._book.connection.execute(_NODES, within)
        # Each at the key where a receipt looks it up: a hash under another key does not count.
        stored = {place: bytes(value) for at, place, value in result.fetchall() if at == level}
        for place, value in enumerate(values, first):
            if stored.get(place) != value:
                raise VerificationFailed(place << level, f"tree node {level}/{place} is not that of the entries")

    def _find_beyond(self) -> None:
        chosen = select(TREE_NODE.c.level, TREE_NODE.c.position).order_by(TREE_NODE.c.level, TREE_NODE.c.position)
        for level, place in self._book.connection.execute(chosen, execution_options={"yield_per": 1_000}):
            if (place + 1) << level > self.size or place < 0 or level < 0:
                raise VerificationFailed(None, f"tree node {level}/{place} is not that of the entries")

    def _notes(self, after: int, until: int | None) -> dict[int, str]:
        chosen = select(CHECKPOINT.c.tree_size, CHECKPOINT.c.note).where(CHECKPOINT.c.tree_size > after)
        if until is not None:
            chosen = chosen.where(CHECKPOINT.c.tree_size <= until)
        notes = self._book.connection.execute(chosen.order_by(CHECKPOINT.c.tree_size))
        return {int(size): str(note) for size, note in notes}

    def _check_checkpoint(self, size: int, note: str, root: bytes) -> Checkpoint:
        try:
            checkpoint = open_checkpoint(note, self._trust)
        except Malformed as error:
            raise VerificationFailed(None, f"checkpoint at {size}: {error}") from None
        if checkpoint.size != size:
            raise VerificationFailed(
                None, f"checkpoint at {size} claims {checkpoint.size} entries; the book has {self._book.size}"
            )
        if checkpoint.root != root:
            raise VerificationFailed(None, f"checkpoint at {size} has a root that is not that of the entries")
        return checkpoint
