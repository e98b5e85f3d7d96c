"""Reading a book: everything that stands at one index, and the proofs for it."""

from __future__ import annotations

from functools import partial

from sqlalchemy import Connection

from ledger.checkpoint import receipt
from ledger.storage import DatabaseState
from ledger.tiles import Tile, tile_bytes
from ledger.tree import Tree, entries_between, entry_bytes, entry_index, hashes_between, latest_checkpoint


class Snapshot(DatabaseState):
    """Facts and entries as of the transaction that this snapshot was taken in."""

    def __init__(self, connection: Connection) -> None:
        """Read through ``connection``."""
        super().__init__(connection)
        self._tree = Tree(connection)

    @property
    def size(self) -> int:
        """How many entries there are."""
        return self._tree.size

    @property
    def root(self) -> bytes:
        """The root hash of the tree."""
        return self._tree.root()

    @property
    def checkpoint(self) -> str:
        """The newest signed checkpoint. Raises: KeyError, for an empty book."""
        note = latest_checkpoint(self.connection)
        if note is None:
            raise KeyError("checkpoint")
        return note

    def entry(self, index: int) -> bytes:
        """The exact bytes of an entry. Raises: KeyError."""
        return entry_bytes(self.connection, index)

    def entry_index(self, command_id: str) -> int | None:
        """Where the entry of a command stands, None if there is none."""
        return entry_index(self.connection, command_id)

    def tile(self, tile: Tile) -> bytes:
        """What C2SP tlog-tiles serves at the tile's path. Raises: KeyError, if the log has not so many entries."""
        hashes, entries = partial(hashes_between, self.connection), partial(entries_between, self.connection)
        return tile_bytes(tile, self.size, hashes, entries)

    def node(self, level: int, position: int) -> bytes:
        """The hash of a complete subtree, for proofs at any size. Raises: KeyError."""
        return self._tree.read(level, position)

    def receipt(self, index: int) -> str:
        """The entry's inclusion proof under the newest checkpoint. Raises: KeyError."""
        if not 0 <= index < self.size:
            raise KeyError(index)
        return receipt(index, self._tree.proof(index), self.checkpoint)
