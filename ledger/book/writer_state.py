"""The current state as the writer decides on it: folded from the entries, never read from the rows that they make.

A row of an account or a key can be changed by anyone who may write to the database, and nothing shows it. An entry
cannot: the root over all entries is in a checkpoint that the log's key signed. So the writer applies every entry once,
when the book is opened, keeps the state in memory, and changes it by applying what it appends. The rows are written for
readers. Entries that another process appended (PostgreSQL) are applied before the next batch is decided, and only if
the newest checkpoint covers them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Final

from sqlalchemy import Connection

from ledger.book.state.open_state import Changes, OpenState
from ledger.book.state.pinned_state import Pinned
from ledger.book.state.proven_entries import ProvenEntries
from ledger.book.state.settled_records import SettledRecords
from ledger.book.state.snapshot_file import SnapshotFile
from ledger.book.state.state_statements import StateStatements
from ledger.book.state.uncollected_objects import UNCOLLECTED
from ledger.book.state.used_nonces import UsedNonces
from ledger.commands.apply import apply_effect
from ledger.commands.context import PendingCommand
from ledger.commands.entry import Entry
from ledger.commands.entry_reader import Read, read_entry
from ledger.commands.governance.state_statement import STATEMENT, Stated
from ledger.commands.registry import KINDS
from ledger.commands.runs.charge_entry import Charged
from ledger.crypto.public_keys import PublicKey
from ledger.log.merkle import CompactRange
from ledger.log.merkle import Read as NodeReader
from ledger.log.verification import open_checkpoint
from ledger.state_tree.journal import StateJournal
from ledger.state_tree.leaves import LOG, SPANS
from ledger.state_tree.snapshot_format import StateSnapshot
from ledger.state_tree.stated_sizes import stated_sizes
from ledger.store.documents import StoredDocuments
from ledger.store.engine import Executor, is_postgres
from ledger.store.merkle_tables import LogTail, Tree, entries_from, entries_of_kind, latest_checkpoint, log_size
from ledger.store.schema_revision import BookUnusable
from ledger.verifier import LogKey, state_entry_secret
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

_APPLY_ERRORS: Final = (Malformed, LookupError, AssertionError, ArithmeticError, TypeError, AttributeError)
"""What applying an entry that is wrong may raise."""
_FOLDED: Final = 1_024
"""Entries after which what was settled by them leaves memory, while a book is opened."""


class WriterState:
    """The state after the first :attr:`size` entries, for the one thread of a process that appends to the log.

    An error in the middle of a change leaves it ahead of the database, and good for nothing.

    Attributes:
        facts: the state to decide on.
        records: where the log names each id, charge and key.
        time: the least time of the next entry (ms), the last one's but after a clock correction; 0 for an empty log.
        durable: how many of the entries are known to be committed; those after them are being committed.
        note: the signed checkpoint over all entries, None for an empty log.
        statements: the statements of the state.
        nonces: those that the newest entries hold.
    """

    def __init__(self, key: LogKey, snapshots: SnapshotFile | None = None) -> None:
        """The state of an empty log, whose public key is ``key``; its snapshots go to a file, if there is one."""
        self._snapshots = snapshots
        self._documents = StoredDocuments()
        self._entries = ProvenEntries()
        self.records = SettledRecords()
        self.facts = OpenState(self._documents, self.records, self._entries)
        self._journal = StateJournal(self.facts.noted, self.facts.sums, keeps_names=snapshots is not None)
        self.facts.note_sums = self._journal.put_down
        self.statements = StateStatements(self._journal, self.facts.put_down)
        self.nonces = UsedNonces()
        self.time = 0
        self.durable = 0
        self.note: str | None = None
        self._key = key
        self._key_id = PublicKey("Ed25519", c.base64url(key.public)).thumbprint
        self._tree = CompactRange()
        self._deadlines: list[tuple[int, str]] = []

    def resume(self, connection: Executor, snapshot: StateSnapshot) -> None:
        """Go on from a snapshot instead of an empty log, with the entries since applied.

        Nothing of it is believed before all of these is true: its root follows from its records; the entries since hold
        a statement of this root and size; and with the nodes of the tree below them, which are read from the database,
        they hash to the root that the newest checkpoint of the log's key signs.

        Raises:
            Malformed: if it is not; then this state is good for nothing.
        """
        if snapshot.size >= log_size(connection):
            raise Malformed("", f"is of {snapshot.size} entries, which the book has not and a statement of them")
        self.begin_at(snapshot, Tree(connection, snapshot.size).read)
        self.catch_up(connection)
        if self.statements.unconfirmed:
            raise Malformed("", f"no statement in the log says that the state of {snapshot.size} entries is this one")

    def begin_at(self, snapshot: StateSnapshot, read: NodeReader) -> None:
        """Take over the state of a snapshot; ``read`` gives the nodes of the log's tree."""
        parts = snapshot.parts()
        self._tree = CompactRange.resumed(snapshot.size, read)
        self.facts.resume(snapshot.size, parts)
        self.records.resume(snapshot.names, sum(one.runs for one in parts[SPANS].values()))
        self._journal.resume(snapshot.size, snapshot.names, parts["charges"])
        self.statements.resume(snapshot.size, snapshot.names, snapshot.tree)
        self.time = parts[LOG][""].time
        self._deadlines = sorted((one.deadline, name) for name, one in parts["charges"].items())

    def close(self) -> None:
        """End the threads that state and write what is in memory, once the last snapshot is written."""
        self.statements.close()
        if self._snapshots is not None:
            self._snapshots.close(self.statements.newest(self.durable))

    @property
    def size(self) -> int:
        """How many entries were applied."""
        return self._tree.size

    @property
    def suspended(self) -> str | None:
        """Why the log's key signs nothing, while it is suspended: no entry follows but the one that ends that."""
        terms = self.facts.key_terms.get(self._key_id)
        why = f"entry {self.size - 1} has suspended the log's key: nothing is recorded until it is resumed or replaced"
        return None if terms is None or terms.suspended_by is None else why

    @property
    def root(self) -> bytes:
        """The root hash over them."""
        return self._tree.root()

    def pinned(self, snapshot: Connection) -> Pinned:
        """What is in memory, copied, for a snapshot of the database at this size."""
        parts = {name: dict(part) for name, part in self.facts.in_memory_parts().items()}
        bound = sum(1 for one in parts["keys"].values() if one.charge is not None)
        counts = {"charges": self.records.charges, "keys": len(self.records.keys) + len(parts["keys"]) - bound}
        return Pinned(snapshot, self.size, self._tree.nodes, parts, counts)

    def begin(self, reads: Executor) -> Tree:
        """Begin a batch, which is decided in memory alone; returns the tree to append to.

        Args:
            reads: reads what is not in memory. It runs each query by itself and may not see the entries of the batch
                before this one, which is being committed meanwhile: those from :attr:`durable` on stay in memory.
        """
        # Of an SQLite book, which has one writing process, every statement from here on is this one's.
        self._journal.is_alone = not is_postgres(reads)
        self._documents.connection = reads
        self._entries.begin(reads, self._tree)
        self.facts.begin()
        return Tree(reads, self.size, self._tree.nodes)

    def committed(self, size: int) -> None:
        """Note that the first ``size`` entries and their rows are durable, and seen by every query from now on."""
        self.durable = size
        self._entries.committed(size, self._tree)
        if self._snapshots is not None:
            self._snapshots.offer(self.statements.newest(size))

    def catch_up(self, connection: Executor, tail: LogTail | None = None) -> bool:
        """Apply the entries that the state lacks: when the book is opened, and what other processes appended.

        Args:
            tail: those entries, where they were read before.

        Returns:
            Whether all of them are of runs, on which no verdict of the policy rests.

        Raises:
            Malformed: if one cannot be applied, or the newest checkpoint of the log's key is not over all that were.
            BookUnusable: if one has replaced the log's key.
        """
        self._documents.connection = connection
        if not self.size:
            # The trees in between are not made: what leads to the newest is summed up.
            self._journal.expect(stated_sizes(entries_of_kind(connection, STATEMENT.name))[-1:])
        before, only_runs = self.size, True
        self.facts.folding = True
        UNCOLLECTED.hold()
        try:
            lacking = entries_from(connection, before) if tail is None else tail.all_entries(connection)
            for index, data in lacking:
                if index != self.size:
                    raise Malformed("", "is missing")
                entry = read_entry(data)
                self._apply(entry, data)
                self._tree.append(data)
                only_runs = only_runs and KINDS[entry.kind].effect is not None
                if not self.size % _FOLDED:
                    self.facts.forget_changes()
                    # Searching it for garbage would take a third of the time.
                    UNCOLLECTED.hold_more()
            self.facts.put_down()
        except _APPLY_ERRORS as error:
            raise Malformed("", f"entry {self.size}: {error}") from None
        finally:
            UNCOLLECTED.release()
        self.facts.folding = False
        note = latest_checkpoint(connection) if tail is None else tail.note
        # A server that took over without the last entries may have got others since, and be as long.
        if self.size > before or note != self.note:
            self._check_signed(note)
            # The process that appended them has written their rows.
            self.facts.forget_changes()
            self.committed(self.size)
        return only_runs

    def _check_signed(self, note: str | None) -> None:
        self.note = note
        if self.note is None:
            raise Malformed("checkpoint", f"is missing over the {self.size} entries of the book")
        self._check_in_force()
        checkpoint = open_checkpoint(self.note, self._key)
        if (checkpoint.size, checkpoint.root) != (self.size, self.root):
            raise Malformed("checkpoint", f"is of {checkpoint.size} entries, the book has {self.size} others")

    def _check_in_force(self) -> None:
        """Check that no entry has replaced the key of this process. Raises: BookUnusable."""
        terms = self.facts.key_terms.get(self._key_id)
        if terms is not None and terms.revoked is not None:
            raise BookUnusable(
                f"entry {terms.revoked} has replaced the log's key {self._key.vkey}: start with the file of the key "
                "that came after it (serve.log_key of the profile); the old key signs nothing more"
            )

    def expect(self, commands: Sequence[PendingCommand]) -> None:
        """Look up together what the commands of one batch name, before the first of them is verified or decided.

        What is new, or in memory, takes no statement. Raises: Malformed, if an entry is missing or changed.
        """
        self._entries.read(position for one in commands for position in self._named(one))

    def _named(self, pending: PendingCommand) -> Iterator[int]:
        """Where the log has what a command names and memory has not."""
        command, body, records = pending.command, pending.body, self.records
        yield from records.ids.positions(command.id)
        if command.key_id not in self.facts.open_keys.open:
            yield from records.keys.positions(command.key_id)
        for charge in (getattr(body, "charge", ""), *getattr(body, "base", ())):
            if charge and charge not in self.facts.open_charges.open:
                yield from records.positions(charge)

    def append(self, entry: Read, data: bytes) -> list[tuple[int, int, bytes]]:
        """Apply the next entry; returns the nodes (level, position, hash) that it completes in the tree."""
        self._apply(entry, data)
        self._entries.append(self.size, data)
        return self._tree.append(data)

    def _apply(self, entry: Read, data: bytes) -> None:
        if entry.time < self.time:
            raise Malformed("time", "lies before the time of the entry before it")
        index, journal, secret = self._tree.size, self._journal, state_entry_secret(data)
        time_after = entry.time_after
        self.records.position = index
        # Another process may state the state after any entry, so the accounts are put down after each but where it is
        # known that none does. What is no run may look at accounts.
        sums, waits = self.facts.account_sums, journal.sums_up and not isinstance(entry.effect, Entry)
        if not waits:
            self.facts.put_down()
        sums.entry = index, secret
        apply_effect(self.facts, entry.effect, index, sums)
        if not waits:
            sums.put()
        journal.record(entry.id, entry.kind, time_after, secret)
        if isinstance(entry.effect, Stated):
            self.statements.note(index, entry.effect)
        if isinstance(entry.effect, Charged):
            heappush(self._deadlines, (entry.effect.charge.deadline, entry.id))
            charges = self.facts.open_charges
            if len(self._deadlines) > 2 * len(charges) + _FOLDED:
                # Most charges are settled long before their deadline.
                self._deadlines = sorted(one for one in self._deadlines if charges.is_pending(one[1]))
        self.time = time_after
        if time_after < entry.time:
            # A clock correction has moved the deadlines.
            charges = self.facts.open_charges
            self._deadlines = sorted((one.deadline, one.id) for one in charges.values() if charges.is_pending(one.id))
        self.records.ids.add(entry.id, index)
        self.nonces.note(index, entry.kind, entry.time, data)

    def recorded(self, command_id: str) -> tuple[int, Entry] | None:
        """The index and the entry of a command; None if its id was never used.

        That an id is new is known from memory, where each entry's id was noted when it was applied. Of any other the
        entry itself is read, checked against the root: so no row, removed or changed, lets an id be used twice.

        Raises:
            Malformed: if the entry is missing or changed.
        """
        for position in self.records.ids.positions(command_id):
            entry = self._entries.entry(position)
            if entry.id == command_id:
                return position, entry
        return None

    def due(self, now: int, most: int) -> list[str]:
        """The ids of pending charges whose deadline has passed, oldest first. They are named once: lapse them."""
        names: list[str] = []
        while len(names) < most and (deadline := self.next_deadline()) is not None and deadline < now:
            names.append(heappop(self._deadlines)[1])
        return names

    def next_deadline(self) -> int | None:
        """The earliest deadline (ms) of a pending charge; None if none is pending."""
        waiting, is_pending = self._deadlines, self.facts.open_charges.is_pending
        while waiting and not is_pending(waiting[0][1]):
            heappop(waiting)
        return waiting[0][0] if waiting else None

    def take_changes(self) -> Changes:
        """What changed since the last call, by part, for the rows of readers; what is settled leaves memory."""
        return self.facts.take_changes()
