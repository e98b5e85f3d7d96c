"""One batch: decide, apply and append, inside one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Connection

from ledger.crypto import detached_jws
from ledger.domain.commands import Command, MakeCharge, Post, ReleaseKey, ReleaseModel, Settle
from ledger.domain.entries import Entry
from ledger.domain.gate import Gate
from ledger.domain.outcomes import Code
from ledger.log.checkpoint import receipt, sign
from ledger.log.verification import open_checkpoint
from ledger.store.database_state import DatabaseState
from ledger.store.merkle_tables import Tree, entry_bytes, entry_index, entry_indexes, latest_checkpoint
from ledger.store.snapshot import Log, Snapshot
from ledger.store.table_mapping import append_rows
from ledger.store.tables import CheckpointRow, EntryRow
from ledger.transitions.apply import apply
from ledger.transitions.decide import LEDGER_ACTOR, authentic, decide
from ledger.transitions.guards import Asked, Decided, Refusal
from ledger.verifier import Checkpoint, LogKey
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

LAPSES_MAX: Final = 1_000
"""Lapses that one batch records at most, so that a long absence does not make one endless transaction."""
LAPSE_ID: Final = "lapse-"
"""How the ids of lapses begin, and no other."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one command of a batch got. See :class:`ledger.book.book.Outcome`."""

    code: Code
    index: int | None
    body: c.Object
    field: str = ""
    detail: str = ""
    repeated: bool = False


class Recorder:
    """What decides and signs for a book, the same in every batch."""

    def __init__(self, gate: Gate, log_key: Ed25519PrivateKey, origin: str, clock: Callable[[], int]) -> None:
        """See :meth:`ledger.book.book.Book.open`."""
        self.gate, self.clock = gate, clock
        self._private = log_key
        self._origin = origin
        self.log = LogKey(origin, log_key.public_key().public_bytes_raw())
        self.public = detached_jws.public_key(log_key)
        self.log_x = self.public.x

    def now(self, log: Log) -> int:
        """What time it is for a log: the clock's, and never before the last entry's."""
        return max(self.clock(), log.time)

    def decide(self, facts: Snapshot, asked: Asked) -> Decided:
        """Decide as the next entry would be decided; for a quote, and for what is kept of it."""
        return decide(facts, asked, self.now(facts), facts.size, self.gate, self.log_x)

    def sign(self, tree: Tree) -> str:
        """The checkpoint of a tree."""
        return sign(Checkpoint(self._origin, tree.size, tree.root()), self._private)

    def check(self, snapshot: Snapshot) -> None:
        """The newest checkpoint is this log's and is of the book's own tree. Raises: BookUnusable's cause."""
        checkpoint = open_checkpoint(snapshot.checkpoint, self.log)
        if (checkpoint.size, checkpoint.root) != (snapshot.size, snapshot.root):
            raise Malformed("checkpoint", f"is of {checkpoint.size} entries, the book has {snapshot.size} others")

    def lapse(self, charge: str) -> Asked:
        """The book's own command for a charge whose deadline has passed."""
        name = f"{LAPSE_ID}{c.digest(charge.encode())[:32]}"
        command = Command("lapse", name, LEDGER_ACTOR, self.public.thumbprint, {"charge": charge})
        raw = command.to_bytes()
        return Asked.read(raw, detached_jws.sign(self._private, raw))


class Batch:
    """The commands of one transaction, each seeing what those before it did."""

    def __init__(self, connection: Connection, recorder: Recorder) -> None:
        """Begin on an open writing transaction; what is due to lapse lapses first."""
        self._connection = connection
        self._recorder = recorder
        self._state = DatabaseState(connection)
        log = Log(connection)
        self._tree = log.tree
        self._entries: dict[str, tuple[int, Entry]] = {}
        self._rows: list[dict[str, object]] = []
        self.note = latest_checkpoint(connection)
        self._stored: dict[str, int | None] = {}
        self._now = recorder.now(log)
        for charge in self._state.due(self._now, LAPSES_MAX):
            self.record(recorder.lapse(charge))

    @property
    def size(self) -> int:
        """How many entries there are with those of this batch."""
        return self._tree.size

    def expect(self, batch: Sequence[Asked]) -> None:
        """Read what these commands will ask for at once, and not row by row."""
        names = [asked.command.id for asked in batch]
        self._stored = {**dict.fromkeys(names), **entry_indexes(self._connection, names)}
        self._prefetch(batch)

    def _prefetch(self, batch: Sequence[Asked]) -> None:
        """Load the actors, keys, charges, contracts and partitions that commands name; read through for the rest."""
        state = self._state
        charges = [asked.body for asked in batch if isinstance(asked.body, MakeCharge)]
        settled = (asked.body for asked in batch if isinstance(asked.body, Post | ReleaseKey | ReleaseModel | Settle))
        state.organisations.load(asked.command.actor for asked in batch)
        state.keys.load([asked.command.key_id for asked in batch] + [body.signing.thumbprint for body in charges])
        state.charges.load([body.charge for body in settled] + [name for body in charges for name in body.base])
        state.contracts.load(body.contract for body in charges)
        state.partitions.load(ref for body in charges for ref in body.partitions)

    def record(self, asked: Asked) -> Answer:
        """Decide a command, and append it if what was decided is recorded."""
        known = self._known(asked)
        if known is not None:
            return known
        index = self._tree.size
        decided = decide(self._state, asked, self._now, index, self._recorder.gate, self._recorder.log_x)
        if not decided.code.recorded:
            return Answer(decided.code, None, decided.derived, decided.field, decided.detail)
        command = asked.command
        body: c.Object = {**decided.derived, "outcome": decided.code.word, "request": command.body}
        if decided.code.refused:
            body["detail"] = decided.detail[:4_000]
        entry = Entry(command.kind, command.id, self._now, command.actor, command.key_id, body, asked.signature)
        try:
            data = entry.to_bytes()
        except Malformed as fault:
            return Answer(Code.MALFORMED, None, {}, "", str(fault))
        self._append(index, entry, data)
        return Answer(decided.code, index, body, decided.field, decided.detail)

    def _append(self, index: int, entry: Entry, data: bytes) -> None:
        apply(self._state, entry, index)
        self._tree.append(data)
        self._entries[entry.id] = (index, entry)
        self._rows.append({"position": index, "id": entry.id, "kind": entry.kind, "time": entry.time, "data": data})

    def _known(self, asked: Asked) -> Answer | None:
        """The answer that this id has already: the same again to the same command, else refused by name."""
        name = asked.command.id
        if name in self._entries:
            index, entry = self._entries[name]
        else:
            found = self._stored[name] if name in self._stored else entry_index(self._connection, name)
            if found is None:
                return None
            index, entry = found, Entry.parse(entry_bytes(self._connection, found))
        try:
            authentic(self._state, asked, self._recorder.log_x)
        except Refusal as refusal:
            decided = refusal.decided
            return Answer(decided.code, None, decided.derived, decided.field, decided.detail)
        if entry.command != asked.command:
            return Answer(Code.ID_REUSED, None, {}, "id", f"the id {name} was used for another command")
        detail = entry.body.get("detail", "")
        return Answer(entry.code, index, entry.body, "", str(detail), repeated=True)

    def finish(self) -> None:
        """Write everything, and the checkpoint over it."""
        if not self._rows:
            return
        self._state.flush()
        append_rows(self._connection, EntryRow, self._rows)
        self._tree.flush()
        self.note = self._recorder.sign(self._tree)
        append_rows(self._connection, CheckpointRow, [{"tree_size": self._tree.size, "note": self.note}])

    def receipt(self, index: int) -> str:
        """The receipt of an entry under the newest checkpoint."""
        if self.note is None:
            raise AssertionError("an entry stands under a checkpoint")
        return receipt(index, self._tree.proof(index), self.note)
