"""Replay: rebuild everything from the entries, and compare with what the book says stands.

Every entry's bytes, place, time and signature are checked and every command is decided anew, the policy's verdict
taken as recorded (:mod:`ledger.recheck`); then each tree node, checkpoint, document, account and registry row of
the book must be what the entries make it, and each account the sum over its distinct runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sqlalchemy import select

from ledger import canonical as c
from ledger import merkle
from ledger.apply import apply
from ledger.decision import Refusal
from ledger.engines import engine_of
from ledger.entries import Entry
from ledger.lineage import known
from ledger.loss import Loss
from ledger.malformed import Malformed
from ledger.memory import MemoryState
from ledger.recheck import check_before, check_fits
from ledger.registry import GLOBAL, Span, holder_of
from ledger.snapshot import Snapshot
from ledger.tables import CheckpointRow, EntryRow, TreeNodeRow, table_of
from ledger.verifier import Checkpoint, LogKey, leaf_hash, verify_receipt

Step = Callable[[int, int], None]
_FAULTS = (Malformed, Refusal, LookupError, AssertionError, ValueError, ArithmeticError, TypeError, AttributeError)


class Broken(Exception):  # noqa: N818 - what is the case
    """The first thing that is wrong, at the entry ``index`` if one is to blame."""

    def __init__(self, index: int | None, fault: str) -> None:
        """Name the place."""
        super().__init__(f"entry {index}: {fault}" if index is not None else fault)
        self.index = index


@dataclass(frozen=True, slots=True)
class Finding:
    """What a verification that found nothing wrong has covered."""

    entries: int
    charges: int
    accounts: int
    documents: int
    root: str
    log: str

    def to_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "accounts": self.accounts,
            "charges": self.charges,
            "documents": self.documents,
            "entries": self.entries,
            "log": self.log,
            "ok": True,
            "root": self.root,
        }

    def in_words(self) -> str:
        """For people."""
        return (
            f"verified: {self.entries} entries replayed with their signatures, {self.charges} charges priced again, "
            f"{self.accounts} accounts re-derived, {self.documents} documents hashed; the checkpoint of {self.log} "
            f"is signed over the root {self.root[:16]}… of these entries, and the inclusion proof of entry "
            f"{self.entries - 1} holds"
        )


def verify_book(url: str, key: LogKey, step: Step) -> Finding:
    """Verify a whole book on one snapshot of it.

    Args:
        url: the book's database.
        key: the log's public key, as someone kept it outside the book.
        step: told how many entries are done, and of how many.

    Raises:
        Broken: naming the first entry that is wrong, or what else is.
    """
    engine = engine_of(url, writes=False)
    try:
        with engine.begin() as connection:
            return verify(Snapshot(connection), key, step)
    finally:
        engine.dispose()


def verify(book: Snapshot, key: LogKey, step: Step) -> Finding:
    """Verify a whole book on a snapshot. See :func:`verify_book`."""
    state = MemoryState(documents=_documents(book))
    nodes: dict[tuple[int, int], bytes] = {}
    read = _reader(nodes)
    last = 0
    for index, (position, filed, data) in enumerate(_stored(book)):
        if index != position:
            raise Broken(index, "is missing")
        try:
            entry = _replayed(state, index, data, last, key)
        except _FAULTS as fault:
            raise Broken(index, _told(fault)) from None
        if filed != (entry.id, entry.kind, entry.time):
            raise Broken(index, "is filed under an id, kind or time that is not its own")
        last = entry.time
        nodes.update(((level, place), value) for level, place, value in merkle.append(index, leaf_hash(data), read))
        step(index + 1, book.size)
    _check_nodes(book, nodes)
    newest = _check_checkpoints(book, nodes, key)
    try:
        _check_rows(book, state)
        _check_sums(state, book.size)
    except _FAULTS as fault:
        raise Broken(None, f"a row cannot be read: {_told(fault)}") from None
    counts = (book.size, len(state.charges), len(state.accounts), len(state.documents))
    return Finding(*counts, root=newest.root.hex(), log=newest.origin)


def _reader(nodes: dict[tuple[int, int], bytes]) -> merkle.Read:
    return lambda level, place: nodes[level, place]


def _told(fault: Exception) -> str:
    return f"names {fault}, which does not exist" if isinstance(fault, KeyError) else str(fault)


def _replayed(state: MemoryState, index: int, data: bytes, last: int, key: LogKey) -> Entry:
    entry = Entry.parse(data)
    if entry.time < last:
        raise Malformed("time", "lies before the time of the entry before it")
    check_before(state, entry, index, c.base64url(key.public))
    apply(state, entry, index)
    check_fits(state, entry)
    return entry


def _stored(book: Snapshot) -> Iterator[tuple[int, tuple[str, str, int], bytes]]:
    """Each entry's position, what it is found by, and its bytes."""
    table = table_of(EntryRow)
    chosen = select(table.c.position, table.c.id, table.c.kind, table.c.time, table.c.data).order_by(table.c.position)
    with book.connection.execute(chosen, execution_options={"yield_per": 1_000}) as found:
        for position, *filed, data in found:
            yield int(position), (filed[0], filed[1], filed[2]), bytes(data)


def _documents(book: Snapshot) -> dict[str, bytes]:
    documents = dict(book.documents)
    for name, data in documents.items():
        if c.digest(data) != name:
            raise Broken(None, f"document {name}: its bytes have another digest")
    return documents


def _check_nodes(book: Snapshot, nodes: dict[tuple[int, int], bytes]) -> None:
    table = table_of(TreeNodeRow)
    stored = {
        (int(level), int(place)): bytes(value)
        for level, place, value in book.connection.execute(select(table.c.level, table.c.position, table.c.hash))
    }
    for place in sorted(nodes.keys() | stored.keys()):
        if nodes.get(place) != stored.get(place):
            level, position = place
            index = position << level
            raise Broken(
                index if index < book.size else None,
                f"tree node {level}/{position} is not that of the entries",
            )


def _check_checkpoints(book: Snapshot, nodes: dict[tuple[int, int], bytes], key: LogKey) -> Checkpoint:
    table = table_of(CheckpointRow)
    newest = None
    for size, note in book.connection.execute(select(table.c.tree_size, table.c.note).order_by(table.c.tree_size)):
        try:
            newest = Checkpoint.open(note, key)
        except Malformed as fault:
            raise Broken(None, f"checkpoint at {size}: {fault}") from None
        if newest.size != size or not 0 < size <= book.size:
            raise Broken(None, f"checkpoint at {size} claims {newest.size} entries; the book has {book.size}")
        if newest.root != merkle.root(size, _reader(nodes)):
            raise Broken(None, f"checkpoint at {size} has a root that is not that of the entries")
    if newest is None or newest.size != book.size:
        raise Broken(None, "the newest entries stand under no checkpoint")
    verify_receipt(book.receipt(book.size - 1), book.entry(book.size - 1), key)
    return newest


def _check_rows(book: Snapshot, state: MemoryState) -> None:
    for name in _PROJECTIONS:
        rebuilt, stored = getattr(state, name), getattr(book, name)
        for place in sorted({*rebuilt, *stored}):
            try:
                found = stored.get(place)
            except _FAULTS as fault:
                raise Broken(None, f"{name}: the row of {place} cannot be read: {_told(fault)}") from None
            if rebuilt.get(place) != found:
                raise Broken(None, f"{name}: the row of {place} is not what the entries make it")


_PROJECTIONS = (
    "organisations",
    "keys",
    "policies",
    "datasets",
    "partitions",
    "contracts",
    "contract_heads",
    "charges",
    "accounts",
    "forgiven",
    "nodes",
)


def _check_sums(state: MemoryState, size: int) -> None:
    """Every account is the sum over the distinct runs its holder can know: computed anew, from the charges alone."""
    for holder, spans in _holders(state, size):
        sums = {ref: (posted, pending) for ref, posted, pending in state.exposures(spans)}
        kept = {one.partition: (one.posted, one.pending) for one in state.accounts_of(holder)}
        for ref in sorted(sums.keys() | kept.keys()):
            if sums.get(ref) != kept.get(ref) and not _both_empty(sums.get(ref), kept.get(ref)):
                raise Broken(None, f"accounts: {holder} of {ref} is not the sum over its runs")


def _holders(state: MemoryState, size: int) -> Iterator[tuple[str, list[Span]]]:
    yield GLOBAL, [Span(node, 0, size) for node in state.nodes]
    for node in state.nodes:
        yield holder_of(node), known(state.nodes, node, size)


def _both_empty(*sums: tuple[Loss, Loss] | None) -> bool:
    return all(one is None or (one[0].empty and one[1].empty) for one in sums)
