"""The contents of a book, and how a book is rebuilt from them.

Four kinds of bytes: entries, the documents beside them, the signed checkpoints, and what witnesses signed of those.
Everything else follows: an entry holds its id, kind and time, a document's digest is its SHA-256, a checkpoint's size
is its second line, the tree's nodes are hashes of the entries, and replay rebuilds every account and registry row.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Annotated, Any, Final, Literal, Protocol

from sqlalchemy import Connection, Select, func, select

from ledger.audit.log_chunk import FAULTS, describe_error
from ledger.audit.replay import VerificationFailed, verify
from ledger.commands.apply import apply
from ledger.commands.entry import Entry
from ledger.domain.memory_state import MemoryState
from ledger.log.merkle import CompactRange
from ledger.log.verification import parse_witness_key
from ledger.store.cosignatures import store_cosignature
from ledger.store.database_state import write_state
from ledger.store.projection_table import append_rows
from ledger.store.snapshot import Snapshot
from ledger.store.tables import CHECKPOINT, COSIGNATURE, DOCUMENT, ENTRY, TREE_NODE
from ledger.verifier import NOTE_BYTES_MAX, LogKey
from ledger.wire import canonical_json as c
from ledger.wire.field_types import between, text
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, read, write
from migrations.transfer.log_check import Head, Step, check_note, streamed, trust_of

AT_ONCE_MAX: Final = 1_000
AT_ONCE_BYTES_MAX: Final = 1 << 24
"""Items of a book that are in memory at a time, and their bytes before the last one of them."""
Kind = Literal["documents", "entries", "checkpoints", "cosignatures"]


class Cosignature(Record, frozen=True):
    """A witness's line, and the size of the checkpoint that it is over."""

    line: Annotated[str, text(NOTE_BYTES_MAX)]
    tree_size: Annotated[int, between(1, 1 << 53)]
    vkey: Annotated[str, text(1_000)]


class Contents(Protocol):
    """A source of a book's bytes."""

    @property
    def tree_size(self) -> int:
        """How many entries there are."""

    def items(self, kind: Kind) -> Generator[bytes]:
        """All bytes of a kind.

        Every entry in order; every document by digest; every signed note, the oldest first; every
        :class:`Cosignature`, by size and vkey.
        """


_QUERIES: Final[dict[Kind, tuple[Select[Any], Callable[..., bytes]]]] = {
    "documents": (select(DOCUMENT.c.data).order_by(DOCUMENT.c.digest), bytes),
    "entries": (select(ENTRY.c.data).order_by(ENTRY.c.position), bytes),
    "checkpoints": (select(CHECKPOINT.c.note).order_by(CHECKPOINT.c.tree_size), str.encode),
    "cosignatures": (
        select(COSIGNATURE.c.line, COSIGNATURE.c.tree_size, COSIGNATURE.c.vkey).order_by(
            COSIGNATURE.c.tree_size, COSIGNATURE.c.vkey
        ),
        lambda *members: write(Cosignature(*members)),
    ),
}


class BookContents:
    """The contents of an existing book, on one snapshot of it."""

    def __init__(self, connection: Connection) -> None:
        """Read through ``connection``."""
        self._connection = connection
        self.tree_size = int(connection.execute(select(func.count()).select_from(ENTRY)).scalar_one())

    def items(self, kind: Kind) -> Generator[bytes]:
        """See :class:`Contents`."""
        chosen, encode = _QUERIES[kind]
        with streamed(self._connection, chosen) as rows:
            for row in rows:
                yield encode(*row)


def fill(connection: Connection, contents: Contents, key: LogKey, step: Step) -> Head:
    """Fill an empty book from contents, and verify all of it by replay before anything is committed.

    Args:
        connection: a writing transaction on a book without an entry.
        contents: the source of its bytes.
        key: the log's key, kept outside the book.
        step: called with how many entries are done, and of how many: each is copied, then replayed.

    Raises:
        VerificationFailed: if the result does not verify.
    """
    for some in _chunks(contents.items("documents")):
        append_rows(connection, DOCUMENT, [{"digest": c.digest(data), "data": data} for data in some])
    tree = _append(connection, contents, step)
    newest = None
    for notes in _chunks(contents.items("checkpoints")):
        rows = [{"tree_size": _size_of(note), "note": _text_of(note)} for note in notes]
        append_rows(connection, CHECKPOINT, rows)
        newest = str(rows[-1]["note"])
    for lines in _chunks(contents.items("cosignatures")):
        for line in lines:
            _store(connection, line)
    head = Head(tree.size, tree.root(), newest)
    check_note(head, trust_of(connection, key))
    if head.size:
        total = 2 * head.size
        verify(Snapshot(connection), key, lambda done, size: step(size + done, total))
    return head


def _append(connection: Connection, contents: Contents, step: Step) -> CompactRange:
    """Append the entries with their tree, and write the state after the last one."""
    state, tree, total = MemoryState(), CompactRange(), 2 * contents.tree_size
    for some in _chunks(contents.items("entries")):
        rows, nodes = [], []
        for data in some:
            index = tree.size
            try:
                entry = Entry.parse(data)
                apply(state, entry, index)
            except FAULTS as error:
                raise VerificationFailed(index, describe_error(error)) from None
            rows.append({"position": index, "id": entry.id, "kind": entry.kind, "time": entry.time, "data": data})
            nodes += tree.append(data)
        append_rows(connection, ENTRY, rows)
        made = [{"level": level, "position": place, "hash": value} for level, place, value in nodes]
        append_rows(connection, TREE_NODE, made)
        step(tree.size, total)
    write_state(connection, state)
    return tree


def _store(connection: Connection, cosignature: bytes) -> None:
    """Store a witness's line, checked against the checkpoint that it is over. Raises: VerificationFailed."""
    try:
        stated = read(Cosignature, cosignature, NOTE_BYTES_MAX)
        store_cosignature(connection, stated.tree_size, parse_witness_key(stated.vkey), stated.line)
    except (Malformed, KeyError) as error:
        raise VerificationFailed(None, f"a cosignature does not hold: {error}") from None


def _size_of(note: bytes) -> int:
    """The size that a note states; only its signature proves it."""
    size = note.split(b"\n", 2)[1:2]
    if not size or not size[0].isdigit() or len(size[0]) > 16:
        raise VerificationFailed(None, "a checkpoint has no tree size on its second line")
    return int(size[0])


def _text_of(note: bytes) -> str:
    """The text of a note. Raises: VerificationFailed, if it is none that a database holds."""
    try:
        text = note.decode()
    except UnicodeDecodeError:
        raise VerificationFailed(None, f"checkpoints: the note over {_size_of(note)} entries must be UTF-8") from None
    if "\0" in text:
        raise VerificationFailed(None, f"checkpoints: the note over {_size_of(note)} entries must hold no NUL")
    return text


def _chunks(items: Generator[bytes]) -> Iterator[list[bytes]]:
    """Some items after the others: a small backup may unpack to a thousand documents of the greatest size."""
    some, size = list[bytes](), 0
    with closing(items) as rest:
        for item in rest:
            some.append(item)
            size += len(item)
            if len(some) == AT_ONCE_MAX or size >= AT_ONCE_BYTES_MAX:
                yield some
                some, size = [], 0
    if some:
        yield some
