"""Entries read back from the database, each checked against the root that the writer made itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

from ledger.commands.entry import Entry
from ledger.log.merkle import CompactRange
from ledger.store.engine import Executor
from ledger.store.merkle_tables import Tree, entries_at
from ledger.verifier import leaf_hash, verify_inclusion
from ledger.wire.malformed import Malformed


class ProvenEntries:
    """Entries by position: bytes that are not those under the root are never returned.

    The newest are held, as the database may not have them yet: those that were appended since the last commit that is
    known to be durable. All others are read, and proven under the root at that commit. So a table of entries or nodes
    can withhold an entry, but not give another one in its place.
    """

    def __init__(self) -> None:
        """Nothing can be read before :meth:`begin`."""
        self._appended: dict[int, bytes] = {}
        self._found: dict[int, bytes] = {}
        self._edges: dict[int, Mapping[tuple[int, int], bytes]] = {}
        self._durable: tuple[int, Mapping[tuple[int, int], bytes]] = 0, {}
        self._tree: Tree | None = None

    @classmethod
    def under(cls, reads: Executor, size: int, edge: Mapping[tuple[int, int], bytes]) -> Self:
        """The first ``size`` entries, under the root that is made of the nodes of their tree's right edge."""
        entries = cls()
        entries._tree = Tree(reads, size, edge)
        return entries

    def begin(self, reads: Executor, tree: CompactRange) -> None:
        """Begin a batch: forget what was read for the last one, and read through ``reads``.

        Args:
            tree: over all entries, the last batch's included.
        """
        size, edge = self._durable
        self._found.clear()
        self._tree = Tree(reads, size, edge)
        self._edges[tree.size] = tree.nodes

    def committed(self, size: int, tree: CompactRange) -> None:
        """Note that the first ``size`` entries are in the database: all of a batch's, and none of a later one's."""
        edge = tree.nodes if size == tree.size else self._edges[size]
        self._durable = size, edge
        self._edges = {at: one for at, one in self._edges.items() if at > size}
        self._appended = {at: data for at, data in self._appended.items() if at >= size}
        if self._tree is not None:
            self._tree = Tree(self._tree.connection, size, edge)

    def append(self, position: int, data: bytes) -> None:
        """Hold the bytes of an entry that is being appended."""
        self._appended[position] = data

    def read(self, positions: Iterable[int]) -> None:
        """Read entries and their proofs, in one statement each. Raises: Malformed, if one is missing or changed."""
        wanted = sorted(set(positions) - self._found.keys() - self._appended.keys())
        if not wanted:
            return
        if self._tree is None or wanted[-1] >= self._tree.size:
            raise Malformed("", f"entry {wanted[-1]}: cannot be read yet")
        # The root is made of the edge that the writer gave: no node that is read has a part in it.
        size, root = self._tree.size, self._tree.root()
        found = entries_at(self._tree.connection, wanted)
        try:
            proofs = self._tree.proofs(wanted)
        except KeyError as error:
            raise Malformed("", f"a node of the tree is missing: {error}") from None
        for position, proof in zip(wanted, proofs, strict=True):
            data = found.get(position)
            if data is None:
                raise Malformed("", f"entry {position}: is missing")
            if not verify_inclusion(leaf_hash(data), position, size, proof, root):
                raise Malformed("", f"entry {position}: its bytes, or the nodes of the tree above it, were changed")
            self._found[position] = data

    def bytes_at(self, position: int) -> bytes:
        """The exact bytes of an entry. Raises: Malformed, if it is missing or changed."""
        self.read((position,))
        data = self._appended.get(position)
        return self._found[position] if data is None else data

    def entry(self, position: int) -> Entry:
        """The entry itself. Raises: Malformed."""
        return Entry.parse(self.bytes_at(position))
