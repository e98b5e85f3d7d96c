"""The longest sound prefix of a damaged book: entries in a row that all apply, under a checkpoint of the log's key.

Only entries, documents and signed notes are read, each row by itself: a row that cannot be read, or does not match
its key or its signature, is left out and counted.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, Select, Table, bindparam, func, inspect, select
from sqlalchemy.exc import DatabaseError

from ledger.commands.apply import apply
from ledger.commands.entry import Entry
from ledger.domain.memory_state import MemoryState
from ledger.log.merkle import CompactRange
from ledger.log.verification import open_checkpoint, parse_witness_key
from ledger.log.witness_protocol import read_cosignature
from ledger.store.successor_book import successor_of
from ledger.store.tables import CHECKPOINT, COSIGNATURE, DOCUMENT, ENTRY, SEAL
from ledger.verifier import Checkpoint, Policy
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from ledger.wire.records import write
from migrations.transfer.book_contents import Cosignature, Kind
from migrations.transfer.later_keys import UNREADABLE, LogKeys
from migrations.transfer.log_check import streamed

_ENTRIES: Final = select(ENTRY.c.position, ENTRY.c.data).order_by(ENTRY.c.position)
_DOCUMENT: Final = select(DOCUMENT.c.data).where(DOCUMENT.c.digest == bindparam("digest"))
_APPLY_ERRORS: Final = (Malformed, LookupError, AssertionError, ArithmeticError, ValueError, TypeError, AttributeError)
"""Errors that reading or applying an invalid entry may raise."""


@dataclass
class SoundPrefix:
    """The sound contents of a book: see :class:`migrations.transfer.book_contents.Contents`.

    Attributes:
        tree_size: how many entries are used; :meth:`shorten` makes it smaller.
        reason: why no more are used: the error of the first entry that is not.
        entries: how many entries the book has, as far as that can be read.
        signed: the newest checkpoint that a key of the log signed, over any entries.
        cosigned: the newest of those that a witness signed.
        successor: the book that the seal names; None without a seal.
        keys: of the log, with those that the book names and does not prove.
    """

    connection: Connection
    keys: LogKeys
    tree_size: int = 0
    reason: str = ""
    entries: int = 0
    signed: Checkpoint | None = None
    cosigned: Checkpoint | None = None
    successor: str | None = None
    left_out: dict[Kind, int] = field(default_factory=dict)
    _notes: dict[int, str] = field(default_factory=dict)
    """Notes of the log's key, by size."""
    _later: dict[int, str] = field(default_factory=dict)
    """Notes of keys that the book names and does not prove, by size: none of them is taken over."""
    _roots: dict[int, bytes] = field(default_factory=dict)
    """Roots over the first entries, at each size with a note of the log's key over exactly these."""

    def __post_init__(self) -> None:
        """Read the notes, then the entries."""
        self._read_entries(self._read_notes())
        self.shorten(max(self._roots, default=0), self.reason)
        with suppress(*UNREADABLE):
            last = self.connection.execute(select(func.max(ENTRY.c.position))).scalar()
            self.entries = max(self.entries, 0 if last is None else int(last) + 1)
        with suppress(*UNREADABLE):
            if SEAL.name in inspect(self.connection).get_table_names():
                successor = successor_of(self.connection)
                self.successor = None if successor is None else successor.book

    def shorten(self, size: int, reason: str) -> None:
        """Use no more than ``size`` entries, and only as many as have a checkpoint."""
        self.tree_size = max((root for root in self._roots if root <= size), default=0)
        self.reason = reason or f"entry {self.tree_size}: no checkpoint of the log's key is over it"

    def root_at(self, size: int) -> bytes:
        """The root over the first entries. Raises: KeyError, if there are fewer."""
        if size > self.tree_size:
            raise KeyError(size)
        tree = CompactRange()
        for data in self._read_sound(size):
            tree.append(data)
        return tree.root()

    def items(self, kind: Kind) -> Generator[bytes]:
        """See :class:`migrations.transfer.book_contents.Contents`."""
        if kind == "entries":
            yield from self._read_sound(self.tree_size)
        elif kind == "documents":
            yield from self._documents()
        elif kind == "checkpoints":
            notes = [note for size, note in sorted(self._notes.items()) if self._holds(size)]
            self.left_out[kind] = self._count(CHECKPOINT) - len(notes)
            yield from map(str.encode, notes)
        else:
            yield from self._cosignatures()

    def _read_sound(self, size: int) -> Iterator[bytes]:
        with streamed(self.connection, _ENTRIES.limit(size)) as rows:
            yield from (bytes(row.data) for row in rows)

    def _holds(self, size: int) -> bool:
        return size <= self.tree_size and size in self._roots

    def _documents(self) -> Iterator[bytes]:
        size = 0
        for digest in self._keys(DOCUMENT.c.digest):
            with suppress(*UNREADABLE):
                data = bytes(self.connection.execute(_DOCUMENT, {"digest": digest}).scalar_one())
                if c.digest(data) == digest:
                    size += 1
                    yield data
        self.left_out["documents"] = self._count(DOCUMENT) - size

    def _cosignatures(self) -> Iterator[bytes]:
        records = [write(Cosignature(line, size, vkey)) for size, vkey, line in self._lines() if self._holds(size)]
        self.left_out["cosignatures"] = self._count(COSIGNATURE) - len(records)
        yield from records

    def _read_notes(self) -> dict[int, Checkpoint]:
        notes, later = dict[int, Checkpoint](), dict[int, Checkpoint]()
        for size in self._keys(CHECKPOINT.c.tree_size):
            with suppress(*UNREADABLE):
                chosen = select(CHECKPOINT.c.note).where(CHECKPOINT.c.tree_size == size)
                note = str(self.connection.execute(chosen).scalar_one())
                for trust, texts, opened in (
                    (self.keys.trust, self._notes, notes),
                    (self._unproven, self._later, later),
                ):
                    with suppress(Malformed):
                        checkpoint = open_checkpoint(note, trust)
                        if checkpoint.size == size:
                            texts[size], opened[size] = note, checkpoint
                            break
        known = {**later, **notes}
        self.signed = known[max(known)] if known else None
        self._read_cosigned(known)
        return notes

    @property
    def _unproven(self) -> Policy:
        return Policy(self.keys.later)

    def _read_cosigned(self, checkpoints: dict[int, Checkpoint]) -> None:
        newest = max((size for size, *_ in self._lines()), default=0)
        self.cosigned = checkpoints.get(newest)

    def _lines(self) -> list[tuple[int, str, str]]:
        """Every witness's line that verifies over a note of a key of the log, by size and vkey."""
        lines, notes = [], {**self._later, **self._notes}
        with suppress(*UNREADABLE):
            chosen = select(COSIGNATURE.c.tree_size, COSIGNATURE.c.vkey, COSIGNATURE.c.line)
            for row in self.connection.execute(chosen.order_by(COSIGNATURE.c.tree_size, COSIGNATURE.c.vkey)):
                size, vkey, line = int(row.tree_size), str(row.vkey), str(row.line)
                with suppress(Malformed, KeyError):
                    if read_cosignature(line.encode(), notes[size], parse_witness_key(vkey)) == line:
                        lines.append((size, vkey, line))
        return lines

    def _read_entries(self, checkpoints: dict[int, Checkpoint]) -> None:
        state, tree = MemoryState(), CompactRange()
        try:
            with streamed(self.connection, _ENTRIES) as rows:
                for row in rows:
                    if int(row.position) != tree.size:
                        raise Malformed("", "is missing")
                    data = bytes(row.data)
                    apply(state, Entry.parse(data), tree.size)
                    tree.append(data)
                    signed = checkpoints.get(tree.size)
                    if signed is not None and signed.root == tree.root():
                        self._roots[tree.size] = signed.root
        except _APPLY_ERRORS as error:
            self.reason = f"entry {tree.size}: {error}"
        except DatabaseError as error:
            self.reason = f"entry {tree.size} or one soon after it cannot be read: {error.orig}"
        self.entries = tree.size

    def _keys(self, column: Any) -> list[Any]:  # noqa: ANN401 - a column of any type
        """Every key that can be read: from the first on, and from the last back where a page between is damaged."""
        keys: dict[Any, None] = {}
        for order in (column, column.desc()):
            chosen: Select[Any] = select(column).order_by(order)
            try:
                for (key,) in self.connection.execute(chosen):
                    keys[key] = None
                break
            except UNREADABLE:
                continue
        return sorted(keys)

    def _count(self, table: Table) -> int:
        """How many rows there are, or how many can be read."""
        with suppress(*UNREADABLE):
            return int(self.connection.execute(select(func.count()).select_from(table)).scalar_one())
        return len(self._keys(next(iter(table.primary_key.columns))))
