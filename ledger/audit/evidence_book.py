"""A book at a past size as its entries alone make it, with what proves each of them and its accounts offline.

Nothing that the book has stored beside its entries is believed: they are applied again, their tree must be the one that
the log's key has signed, and each statement of state among them must be of the state that they make.
"""

from __future__ import annotations

from collections.abc import Callable

from ledger.audit.log_chunk import FAULTS, describe_error
from ledger.audit.statement_check import StatementCheck
from ledger.book.past_snapshot import PastSnapshot
from ledger.book.state.account_proof import AccountProof, account_proof
from ledger.book.state.state_statements import StatedTree
from ledger.commands.apply import apply
from ledger.commands.entry import Entry
from ledger.commands.governance.state_statement import STATEMENT
from ledger.domain.memory_state import MemoryState
from ledger.log.checkpoint import receipt
from ledger.log.merkle import CompactRange
from ledger.log.verification import check_extends, open_checkpoint, verify_receipt
from ledger.log.verification_findings import VerificationFailed
from ledger.store.cosignatures import best_size, cosigned_checkpoint
from ledger.store.documents import StoredDocuments
from ledger.store.engine import Executor
from ledger.store.log_key.rotation_proofs import Trust
from ledger.store.merkle_tables import entries_of_kind
from ledger.store.snapshot import Log
from ledger.verifier import Checkpoint
from ledger.wire.malformed import Malformed


class EvidenceBook(PastSnapshot):
    """The first ``size`` entries, applied, and proven under one checkpoint.

    Attributes:
        note: that checkpoint with its cosignatures: of those that hold all of the entries, the newest of which most
            witnesses have cosigned. It may be of more entries.
        head: what it says.
        trust: the keys that the log has or had.
        stated: the tree of the newest statement among the entries; None if there is none, and no account is proven.
        settled: by charge, the index of the entry that settled it.
        released: by charge, the index of the entry that let its newest model leave.
    """

    def __init__(self, connection: Executor, size: int, trust: Trust, step: Callable[[int, int], None]) -> None:
        """Apply the first ``size`` entries, at least one.

        Args:
            connection: to the book, in one transaction.
            size: how many.
            trust: the keys that the log has or had.
            step: called from time to time with the number of entries done, and of all.

        Raises:
            KeyError: if there are not so many, or none.
            VerificationFailed: if an entry cannot be applied, or is not under the root that the log has signed.
        """
        if not 0 < size <= Log(connection).size:
            raise KeyError(size)
        Log.__init__(self, connection, size)
        check = StatementCheck(
            [statement for statement in entries_of_kind(connection, STATEMENT.name) if statement[0] < size]
        )
        MemoryState.__init__(self, documents=StoredDocuments(connection), **check.parts)
        self.settled: dict[str, int] = {}
        self.released: dict[str, int] = {}
        self.trust = trust
        tree = self._replayed(check, step)
        self.stated: StatedTree | None = check.newest
        self._whole = Log(connection, best_size(connection, size - 1, Log(connection).size))
        self.note = cosigned_checkpoint(connection, self._whole.size)
        self.head = self._proven(tree)

    def _replayed(self, check: StatementCheck, step: Callable[[int, int], None]) -> CompactRange:
        tree = CompactRange()
        for index, data in enumerate(self):
            try:
                entry = Entry.parse(data)
                apply(self, entry, index)
                check.check(entry, (index, entry.id, entry.kind, entry.time, data), entry.time_after)
                self._note(entry, index)
            except FAULTS as error:
                raise VerificationFailed(index, describe_error(error)) from None
            tree.append(data)
            step(index + 1, self.size)
        return tree

    def _note(self, entry: Entry, index: int) -> None:
        if entry.code.refused:
            return
        if entry.kind in {"post", "void", "lapse"}:
            self.settled[str(entry.request["charge"])] = index
        elif entry.kind == "model_release":
            self.released[str(entry.request["charge"])] = index

    def _proven(self, tree: CompactRange) -> Checkpoint:
        """The checkpoint, which must continue the tree of the entries. Raises: VerificationFailed."""
        try:
            head = open_checkpoint(self.note, self.trust)
            ours = Checkpoint(head.origin, tree.size, tree.root())
            between = self._whole.consistency(tree.size) if tree.size < head.size else []
            check_extends(ours, head, between)
        except Malformed as error:
            raise VerificationFailed(None, f"the log's key has signed other entries: {error}") from None
        return head

    @property
    def checkpoint(self) -> str:
        """The checkpoint under which each entry is proven."""
        return self.note

    def receipt(self, index: int) -> str:
        """The entry's inclusion proof under that checkpoint. Raises: KeyError; VerificationFailed, if it is none."""
        if not 0 <= index < self.size:
            raise KeyError(index)
        made = receipt(index, self._whole.tree.proof(index), self.note)
        try:
            verify_receipt(made, self.entry(index), self.trust)
        except Malformed as error:
            raise VerificationFailed(index, f"the stored hashes do not prove it: {error}") from None
        return made

    def proof(self, partition: str, holder: str) -> AccountProof | None:
        """What proves an account to a caller who may see every entry; None if no statement is among the entries."""
        return None if self.stated is None else account_proof(self, self.stated, partition, holder, lambda _: True)
