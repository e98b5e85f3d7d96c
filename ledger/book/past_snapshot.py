"""A book as it was when its log had fewer entries: the same entries applied again, in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from ledger.commands.apply import apply
from ledger.commands.entry import Entry
from ledger.domain.charge_record import Charge
from ledger.domain.facts import Span
from ledger.domain.memory_state import MemoryState
from ledger.domain.organisation_graph import END
from ledger.domain.outcomes import ChargeState
from ledger.store.documents import StoredDocuments
from ledger.store.engine import Executor
from ledger.store.merkle_tables import Tree
from ledger.store.snapshot import Log

Sign = Callable[[int, bytes], str]
"""Makes the signed checkpoint of a tree of this size, with this root."""


class PastSnapshot(Log, MemoryState):
    """Facts and entries as they were when the log had ``size`` entries.

    The facts are made by applying those entries one after another, in time and memory in proportion to them; proofs
    cost no more than they do now. Its checkpoint is signed on demand: the very bytes that were signed then, if
    a commit ended there (Ed25519 signs the same text the same way).
    """

    def __init__(self, connection: Executor, size: int, sign: Sign) -> None:
        """Apply the first ``size`` entries. Raises: KeyError, if there are not so many."""
        if not 0 <= size <= Tree(connection).size:
            raise KeyError(size)
        Log.__init__(self, connection, size)
        # Known by their digest, so that it does not matter which were stored later.
        MemoryState.__init__(self, documents=StoredDocuments(connection))
        self._sign = sign
        for index, data in enumerate(self):
            apply(self, Entry.parse(data), index)

    def __hash__(self) -> int:
        """By identity, as a snapshot of the current state: what was computed from it is kept while it is read."""
        return id(self)

    def latest(self, author: int, most: int) -> list[Charge]:
        """The newest charges authored at a node, newest first."""
        self._authored.take(self.charges)
        return [self.charges[name] for name in reversed(self._authored.names(Span(author, 0, END))[-most:])]

    def holders(self, ref: str, most: int) -> list[str]:
        """The first so many holders of accounts of a partition, in order."""
        return sorted(holder for of, holder in self.accounts if of == ref)[:most]

    def begun(self, ref: str, spans: Iterable[Span], most: int) -> list[Charge]:
        """The first so many charges in these spans to a partition that were not voided."""
        self._authored.take(self.charges)
        found = (self.charges[name] for span in spans for name in self._authored.names(span))
        return [*islice((one for one in found if ref in one.partitions and one.state is not ChargeState.VOIDED), most)]

    @property
    def checkpoint(self) -> str:
        """The signed checkpoint of the log at this size. Raises: KeyError, for an empty log."""
        if not self.size:
            raise KeyError("checkpoint")
        return self._sign(self.tree.size, self.tree.root())
