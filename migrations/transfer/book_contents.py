"""What a book consists of, and how a book is made of it again.

Four kinds of bytes: entries, the documents beside them, the signed checkpoints, and what witnesses signed of those.
All else follows: an entry's id, kind and time stand in it, a document's digest is its SHA-256, a checkpoint's size is
its second line, the tree's nodes are hashes of the entries, and every account and registry row is what replay makes of
them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import fields
from itertools import islice
from typing import Any, Protocol

from sqlalchemy import Connection, Select, func, select

from ledger.audit.replay import Broken, verify
from ledger.domain.entries import Entry
from ledger.domain.memory_state import MemoryState
from ledger.log.merkle import CompactRange
from ledger.log.verification import parse_witness_key
from ledger.store.cosignatures import store_cosignature
from ledger.store.database_state import DatabaseState
from ledger.store.snapshot import Snapshot
from ledger.store.table_mapping import append_rows
from ledger.store.tables import CHECKPOINT, COSIGNATURE, DOCUMENT, ENTRY, TREE_NODE
from ledger.transitions.apply import apply
from ledger.verifier import NOTE_BYTES_MAX, LogKey
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from migrations.transfer.log_check import Head, Step, check_note, streamed

_AT_ONCE = 1_000


class Contents(Protocol):
    """Where a book's bytes come from."""

    @property
    def tree_size(self) -> int:
        """How many entries there are."""

    def entries(self) -> Generator[bytes]:
        """Every entry's bytes, in order."""

    def documents(self) -> Generator[bytes]:
        """Every document's bytes, by digest."""

    def checkpoints(self) -> Generator[bytes]:
        """Every signed note, the oldest first."""

    def cosignatures(self) -> Generator[bytes]:
        """Every witness's line, as RFC 8785 JSON with its vkey and the size that it is over, by size and vkey."""


class BookContents:
    """A book's own, on one snapshot of it."""

    def __init__(self, connection: Connection) -> None:
        """Read through ``connection``."""
        self._connection = connection
        entry = ENTRY
        self.tree_size = int(connection.execute(select(func.count()).select_from(entry)).scalar_one())

    def entries(self) -> Generator[bytes]:
        """See :class:`Contents`."""
        table = ENTRY
        return self._bytes(select(table.c.data).order_by(table.c.position))

    def documents(self) -> Generator[bytes]:
        """See :class:`Contents`."""
        table = DOCUMENT
        return self._bytes(select(table.c.data).order_by(table.c.digest))

    def checkpoints(self) -> Generator[bytes]:
        """See :class:`Contents`."""
        table = CHECKPOINT
        with closing(streamed(self._connection, select(table.c.note).order_by(table.c.tree_size))) as rows:
            for (note,) in rows:
                yield str(note).encode()

    def cosignatures(self) -> Generator[bytes]:
        """See :class:`Contents`."""
        table = COSIGNATURE
        chosen = select(table.c.tree_size, table.c.vkey, table.c.line).order_by(table.c.tree_size, table.c.vkey)
        with closing(streamed(self._connection, chosen)) as rows:
            for size, vkey, line in rows:
                yield c.dump({"line": line, "tree_size": size, "vkey": vkey})

    def _bytes(self, chosen: Select[Any]) -> Generator[bytes]:
        with closing(streamed(self._connection, chosen)) as rows:
            for (data,) in rows:
                yield bytes(data)


def fill(connection: Connection, contents: Contents, key: LogKey, step: Step) -> Head:
    """Make an empty book of contents, and verify all of it by replay, before anything is committed.

    Args:
        connection: a writing transaction on a book without an entry.
        contents: what it is made of.
        key: the log's key, as someone kept it.
        step: called with how many entries are done, and of how many: each is copied, then replayed.

    Raises:
        Broken: if what was made does not verify.
    """
    for some in _chunks(contents.documents()):
        append_rows(connection, DOCUMENT, [{"digest": c.digest(data), "data": data} for data in some])
    tree = _append(connection, contents, step)
    note = b""
    for notes in _chunks(contents.checkpoints()):
        append_rows(connection, CHECKPOINT, [{"tree_size": _size_of(one), "note": one.decode()} for one in notes])
        note = notes[-1]
    for lines in _chunks(contents.cosignatures()):
        for line in lines:
            _keep(connection, line)
    head = Head(tree.size, tree.root(), note.decode() or None)
    check_note(head, key)
    if head.size:
        total = 2 * head.size
        verify(Snapshot(connection), key, lambda done, size: step(size + done, total))
    return head


def _append(connection: Connection, contents: Contents, step: Step) -> CompactRange:
    """Append the entries with their tree, and write the state after the last one."""
    state, tree, total = MemoryState(), CompactRange(), 2 * contents.tree_size
    for some in _chunks(contents.entries()):
        rows, nodes = [], []
        for data in some:
            index = tree.size
            try:
                entry = Entry.parse(data)
                apply(state, entry, index)
            except (Malformed, LookupError, ValueError, TypeError) as error:
                raise Broken(index, str(error)) from None
            rows.append({"position": index, "id": entry.id, "kind": entry.kind, "time": entry.time, "data": data})
            nodes += tree.append(data)
        append_rows(connection, ENTRY, rows)
        made = [{"level": level, "position": place, "hash": value} for level, place, value in nodes]
        append_rows(connection, TREE_NODE, made)
        step(tree.size, total)
    database = DatabaseState(connection)
    for one in fields(state):
        if one.name != "documents":
            getattr(database, one.name).update(getattr(state, one.name))
    database.flush()
    return tree


def _keep(connection: Connection, cosignature: bytes) -> None:
    """Keep a witness's line, checked against the checkpoint that it is over. Raises: Broken."""
    try:
        stated = c.fields(c.parse_canonical(cosignature, NOTE_BYTES_MAX), "", ("line", "tree_size", "vkey"))
        size, vkey = c.integer(stated["tree_size"], "tree_size", 1, 1 << 53), c.string(stated["vkey"], "vkey")
        store_cosignature(connection, size, parse_witness_key(vkey), c.string(stated["line"], "line", NOTE_BYTES_MAX))
    except (Malformed, KeyError) as error:
        raise Broken(None, f"a cosignature does not hold: {error}") from None


def _size_of(note: bytes) -> int:
    """The size that a note states; whether it is true, its signature says."""
    size = note.split(b"\n", 2)[1:2]
    if not size or not size[0].isdigit() or len(size[0]) > 16:
        raise Broken(None, "a checkpoint has no tree size on its second line")
    return int(size[0])


def _chunks(items: Generator[bytes]) -> Iterator[list[bytes]]:
    with closing(items) as rest:
        while some := list(islice(rest, _AT_ONCE)):
            yield some
