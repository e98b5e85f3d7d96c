"""Entries read back from the database, each checked against the root that the writer made itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final, Self

from ledger.commands.entry import Entry
from ledger.commands.entry_reader import Read, read_entry
from ledger.log import merkle
from ledger.log.merkle import CompactRange
from ledger.store.engine import Executor
from ledger.store.merkle_tables import Tree, entries_at, entries_between
from ledger.verifier import leaf_hash, verify_inclusion
from ledger.wire.malformed import Malformed

BLOCK_LEVEL: Final = 8
"""The level of the node that proves a block of entries: 2^8 of them, which begin at a multiple of that."""
MANY: Final = 32
"""Entries of one block from which on the whole block is read, and proven by one path: as fast as so many paths."""


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
        self._parsed: dict[int, Read] = {}
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
        self._parsed.clear()
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
        """Read entries and their proofs: two statements for a block of which many are named, two for the others.

        Raises:
            Malformed: if an entry is missing or changed.
        """
        wanted = sorted(set(positions) - self._found.keys() - self._appended.keys())
        if not wanted:
            return
        if self._tree is None or wanted[-1] >= self._tree.size:
            raise Malformed("", f"entry {wanted[-1]}: cannot be read yet")
        single = list[int]()
        for block, some in groupby(wanted, key=lambda at: at >> BLOCK_LEVEL):
            named = [*some]
            if len(named) >= MANY and (block + 1) << BLOCK_LEVEL <= self._tree.size:
                self._read_block(self._tree, block)
            else:
                single += named
        if single:
            self._read_each(self._tree, single)

    def _read_each(self, tree: Tree, wanted: Sequence[int]) -> None:
        # The root is made of the edge that the writer gave: no node that is read has a part in it.
        size, root = tree.size, tree.root()
        found = entries_at(tree.connection, wanted)
        for position, proof in zip(wanted, _proofs(tree, wanted), strict=True):
            data = found.get(position)
            if data is None:
                raise Malformed("", f"entry {position}: is missing")
            if not verify_inclusion(leaf_hash(data), position, size, proof, root):
                raise _changed(position)
            self._found[position] = data

    def _read_block(self, tree: Tree, block: int) -> None:
        """Read a block: its node is made of the entries themselves, and one path leads from it to the root."""
        first, before = block << BLOCK_LEVEL, (block + 1) << BLOCK_LEVEL
        found = entries_between(tree.connection, first, before)
        missing = next((at for at, one in enumerate(found, first) if at != one[0]), first + len(found))
        if missing < before:
            raise Malformed("", f"entry {missing}: is missing")
        levels = merkle.extend(0, [leaf_hash(data) for _, data in found], {})
        # A path below the block's node is of its own entries.
        own = [hashes[1] for _, hashes in levels[:BLOCK_LEVEL]]
        (above,) = _proofs(tree, [first])
        if not verify_inclusion(levels[0][1][0], first, tree.size, [*own, *above[BLOCK_LEVEL:]], tree.root()):
            # One of them: its own path shows which.
            self._read_each(tree, range(first, before))
            raise _changed(first)
        self._found.update(found)

    def bytes_at(self, position: int) -> bytes:
        """The exact bytes of an entry. Raises: Malformed, if it is missing or changed."""
        self.read((position,))
        data = self._appended.get(position)
        return self._found[position] if data is None else data

    def entry(self, position: int) -> Entry:
        """The entry itself. Raises: Malformed."""
        return Entry.parse(self.bytes_at(position))

    def read_at(self, position: int) -> Read:
        """The entry as applying it takes it, parsed once. Raises: Malformed."""
        read = self._parsed.get(position)
        if read is None:
            read = self._parsed[position] = read_entry(self.bytes_at(position))
        return read


def _proofs(tree: Tree, wanted: Sequence[int]) -> list[list[bytes]]:
    """The paths of entries. Raises: Malformed, if a node is missing."""
    try:
        return tree.proofs(wanted)
    except KeyError as error:
        raise Malformed("", f"a node of the tree is missing: {error}") from None


def _changed(position: int) -> Malformed:
    return Malformed("", f"entry {position}: its bytes, or the nodes of the tree above it, were changed")
