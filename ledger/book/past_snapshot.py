"""What is read of a book beside its current state: the state of fewer entries, and of a stopped book the log alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final

from ledger.book.submitted_command import BookPaused, BookStopped, RowsDiffer
from ledger.commands.apply import apply
from ledger.commands.entry import Entry
from ledger.crypto.public_keys import PublicKey
from ledger.domain.charge_record import Charge
from ledger.domain.facts import Span
from ledger.domain.memory_state import MemoryState
from ledger.domain.organisation_graph import END
from ledger.domain.outcomes import ChargeState
from ledger.log.checkpoint import LogSigner
from ledger.log.merkle import CompactRange
from ledger.log.verification import check_extends, open_checkpoint
from ledger.store.database_state import PROJECTIONS, DatabaseState
from ledger.store.documents import StoredDocuments
from ledger.store.engine import Executor
from ledger.store.merkle_tables import Tree
from ledger.store.snapshot import Log, Snapshot
from ledger.verifier import Checkpoint
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

_OF_STATE: Final = {*PROJECTIONS, "documents"} | {name for name in vars(DatabaseState) if not name.startswith("__")}
Sign = Callable[[int, bytes], str]
"""Makes the signed checkpoint of a tree of this size, with this root."""


class StoppedSnapshot(Snapshot):
    """A snapshot of a book that takes no more commands: its log, and nothing of its state.

    The rows of the state are compared with what the entries make only while the writer runs. An entry is proven by the
    tree.
    """

    def __init__(self, connection: Executor, why: str) -> None:
        """Read through ``connection``; ``why`` the book has stopped."""
        self._why = why
        Log.__init__(self, connection)

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of a snapshot
        """An attribute of the log. Raises: BookStopped, for one of the state."""
        if name in _OF_STATE:
            raise BookStopped(self._why)
        return super().__getattribute__(name)


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
        self._sign, self._signed = sign, ""
        tree = CompactRange()
        for index, data in enumerate(self):
            apply(self, Entry.parse(data), index)
            tree.append(data)
        # Never of stored nodes: whoever writes the database could have any root signed.
        self._applied = tree.root()

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
        """The signed checkpoint over the entries that were applied. Raises: KeyError, for an empty log; what signs."""
        if not self.size:
            raise KeyError("checkpoint")
        self._signed = self._signed or self._sign(self.size, self._applied)
        return self._signed


def sign_past(now: Snapshot, signer: LogSigner, size: int, root: bytes) -> str:
    """The checkpoint of an earlier size, if the newest one that this process's key signed continues it.

    Args:
        now: the book as it is, whose rows also show what other processes have recorded of the key.
        signer: signs, by the key of this process.
        size: of the past.
        root: over the first ``size`` entries, made of these.

    Raises:
        BookPaused: if the key is suspended.
        BookStopped: if the key was replaced.
        RowsDiffer: if the entries are not those that the key has signed.
    """
    terms = now.key_terms.get(PublicKey("Ed25519", c.base64url(signer.key.public)).thumbprint)
    if terms is not None and terms.revoked is not None:
        raise BookStopped(f"entry {terms.revoked} has replaced the log's key: the old key signs nothing more")
    if terms is not None and terms.suspended_by is not None:
        raise BookPaused("the log's key is suspended: nothing is signed until it is resumed or replaced")
    try:
        head = open_checkpoint(now.checkpoint, signer.key)
        between = now.consistency(size) if size < head.size else []
        check_extends(Checkpoint(signer.key.name, size, root), head, between)
    except (Malformed, KeyError) as error:
        raise RowsDiffer(f"the first {size} entries are not those that the log's key has signed: {error}") from None
    return signer.sign(size, root)
