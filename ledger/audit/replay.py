"""Replay: rebuild the state from the entries, and compare it with what the book has stored.

Every entry's bytes, place and time are checked and the entry is applied; then each tree node, checkpoint,
document, account and registry row of the book must be what the entries make it, and each account the sum over its
distinct runs. To verify is to replay and, entry by entry, to check the signature and to decide the command anew
(:mod:`ledger.audit.entry_check`). The log is read in chunks and no more of it is held than one chunk; the state at
the end is held whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy import Connection, select
from sqlalchemy.exc import DatabaseError

from ledger.audit.entry_check import check_before, check_fits
from ledger.audit.log_chunk import FAULTS, Stored, describe_error, read_chunk
from ledger.audit.permit_cache import PermitCache
from ledger.audit.projection_check import check_sums, find_invalid_text
from ledger.audit.run_entry import SignedRun
from ledger.audit.signature_batch import SignatureBatch, helper_count, helping
from ledger.audit.statement_check import StatementCheck
from ledger.audit.tree_rebuild import TreeRebuild
from ledger.audit.trusted_checkpoints import check_trusted
from ledger.audit.verification_report import VerificationReport
from ledger.book.state.uncollected_objects import UNCOLLECTED
from ledger.commands.apply import apply, apply_effect
from ledger.commands.entry import Entry
from ledger.commands.governance.state_statement import STATEMENT
from ledger.commands.registry import KINDS
from ledger.crypto.ed25519 import UnknownLibrary, checked_libsodium
from ledger.crypto.organisation_keys import SignerKey
from ledger.domain.gate import Gate
from ledger.log.verification import verify_receipt
from ledger.log.verification_findings import Fork, Shorter, VerificationFailed
from ledger.store.cosignatures import check_cosignatures
from ledger.store.database_integrity import check_integrity, check_revision, integrity_beside, is_damage
from ledger.store.database_state import check_rows
from ledger.store.documents import StoredDocuments
from ledger.store.engine import engine_of
from ledger.store.log_key.rotation_proofs import first_x, trusted
from ledger.store.merkle_tables import entries_of_kind, repeated_id
from ledger.store.schema_revision import READABLE_SINCE, BookUnusable, check_schema
from ledger.store.snapshot import Log, Snapshot
from ledger.store.successor_book import check_successor
from ledger.store.tables import DOCUMENT, ENTRY
from ledger.verifier import LOG_KEY_SUSPENSION, Checkpoint, LogKey
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

CHUNK: Final = 1_024
CHUNK_BYTES: Final = 1 << 21
"""Entries that are read together, and bytes of them (and one fetch more); no more of the log is held."""
_FETCHED: Final = 64
Step = Callable[[int, int], None]
P = ParamSpec("P")
T = TypeVar("T")


def verify(  # noqa: PLR0913 - what to check, against what, and who decides
    book: Snapshot,
    key: LogKey,
    step: Step,
    *,
    gate: Gate | None = None,
    kept: Sequence[Checkpoint] = (),
    signatures: bool = True,
    decisions: bool = True,
    processes: int | None = None,
) -> VerificationReport:
    """Verify a whole book on one snapshot of it.

    Args:
        book: the snapshot.
        key: a public key that the log has or had, kept outside the book.
        step: called from time to time with the number of entries done, and of all.
        gate: decides again what the policy decided; without one, the recorded verdicts are used.
        kept: checkpoints of this log that were kept outside the book, their signatures checked.
        signatures: whether the signature over every entry's command is verified. Those over documents and
            checkpoints always are.
        decisions: whether every command is decided again and its signature verified. Without, the book is only
            replayed: that proves that its rows follow from its entries, not that the entries are valid.
        processes: that verify signatures beside this one; None for as many as are of use.

    Raises:
        VerificationFailed: naming the first entry that is wrong, or the first row that is.
        Fork: if the log's key has signed another history than the book's.
        Shorter: if the book ends before a checkpoint that was kept.
    """
    # Only signatures are worth another process: reading an entry takes less time than sending it.
    count = (helper_count(book.size) if decisions and signatures else 0) if processes is None else processes
    try:
        with (
            helping(count, wait=processes is not None) as helpers,
            integrity_beside(book.connection) as integrity,
        ):
            replay = _Replay(book, key, SignatureBatch(helpers, enabled=signatures), gate, decisions=decisions)
            check_trusted(book, kept, replay.trust)
            return replay.run(step, len(kept), integrity)
    except DatabaseError:
        find_invalid_text(book.connection)
        raise
    except FAULTS as error:
        check_integrity(book.connection)
        raise VerificationFailed(None, f"the book cannot be read: {describe_error(error)}") from None


def _of_book(check: Callable[Concatenate[Snapshot, P], T]) -> Callable[Concatenate[str, P], T]:
    def check_book(url: str, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            checked_libsodium()
        except UnknownLibrary as error:
            raise BookUnusable(str(error)) from None
        engine = engine_of(url, writes=False)
        try:
            with engine.begin() as connection:
                _check_revision(connection)
                return check(Snapshot(connection), *args, **kwargs)
        except DatabaseError as error:
            if not is_damage(error, engine):
                raise
            reported = str(error.orig).strip().partition("\n")[0]
            raise VerificationFailed(None, f"the database cannot be read: {reported}") from None
        except UnicodeDecodeError:
            # The message of the database itself quotes the invalid text.
            raise VerificationFailed(
                None, "the database cannot be read: its schema holds text that is not UTF-8"
            ) from None
        finally:
            engine.dispose()

    return check_book


def _check_revision(connection: Connection) -> None:
    try:
        check_schema(connection, READABLE_SINCE)
    except BookUnusable:
        check_revision(connection)
        raise


verify_book = _of_book(verify)
"""The same of the book at a URL. Raises: BookUnusable too, if this program cannot read its schema."""


class _Replay:
    """One book, from its first entry on."""

    def __init__(
        self,
        book: Snapshot,
        key: LogKey,
        signatures: SignatureBatch,
        gate: Gate | None,
        *,
        decisions: bool,
    ) -> None:
        self.trust = trusted(book.connection, key)
        self._book, self._origin, self._signatures = book, key.origin, signatures
        self._decisions = decisions
        self._log_x = first_x(self.trust, key)
        self._statements = StatementCheck(entries_of_kind(book.connection, STATEMENT.name))
        self._state = self._statements.state(StoredDocuments(book.connection))
        self._permits = PermitCache(self._state, gate, self._log_x)
        self._growth = TreeRebuild(book, self.trust)
        self._last = 0
        self._suspended = False

    def run(self, step: Step, kept: int, integrity: Callable[[], str]) -> VerificationReport:
        book, state = self._book, self._state
        documents = _check_documents(book)
        # The state has no reference cycles; the collector's search for some took a sixth of the time.
        UNCOLLECTED.hold()
        try:
            for stored in _stored_chunks(book):
                self._growth.grow(self._apply(stored))
                UNCOLLECTED.hold_more()
                step(self._growth.size, book.size)
        finally:
            UNCOLLECTED.release()
            # A signature that does not verify comes before any later error.
            self._signatures.finish()
        self._check_ids()
        newest = self._growth.finish()
        if newest is not None:
            verify_receipt(book.receipt(book.size - 1), book.entry(book.size - 1), self.trust)
        try:
            check_rows(book, state)
            check_sums(state, book.size)
            check_cosignatures(Log(book.connection))
            moved = check_successor(book.connection, book.size)
            not_run = integrity()
        except FAULTS as error:
            raise VerificationFailed(None, f"a row cannot be read: {describe_error(error)}") from None
        return VerificationReport(
            entries=book.size,
            charges=len(state.charges),
            accounts=len(state.accounts),
            documents=documents,
            signatures=self._signatures.count,
            kept=kept,
            decided=self._decisions,
            judged=self._decisions and self._permits.gate is not None,
            root=book.root.hex(),
            log=self._origin,
            moved=moved,
            not_run=not_run,
        )

    def _check_ids(self) -> None:
        """Check that no id is used twice, once entries have their own: else a signed command could be repeated."""
        if (found := repeated_id(self._book.connection)) is not None:
            name, index = found
            raise VerificationFailed(index, f"the id {name} is of an earlier entry: a command is recorded once")

    def _apply(self, stored: list[Stored]) -> list[bytes]:
        """Read, check and apply the next entries; returns their leaf hashes."""
        chunk = read_chunk(self._growth.size, stored, self._last, whole=self._decisions)
        index = chunk.start
        try:
            for index, (entry, time) in enumerate(zip(chunk.read, chunk.times, strict=True), chunk.start):
                row = stored[index - chunk.start]
                self._check_suspension(entry, row)
                secret = self._statements.secret(row)
                with_sums = self._statements.sums_up and not isinstance(entry, Entry)
                if not with_sums:
                    self._state.put_down()
                self._state.account_sums.entry = index, secret
                if isinstance(entry, SignedRun):
                    self._decide_run(entry, row, index)
                elif self._decisions:
                    assert isinstance(entry, Entry)
                    self._decide(None, entry, index)
                else:
                    apply_effect(self._state, entry, index, self._state.account_sums)
                if not with_sums:
                    self._state.account_sums.put()
                self._statements.check(entry, row, time, secret)
                self._last = time
        except FAULTS as error:
            # The effect of a changed entry may show only later, at the next statement of state.
            self._growth.check_leaves(chunk.leaves[: index - chunk.start])
            raise VerificationFailed(index, describe_error(error)) from None
        if chunk.wrong is not None:
            raise VerificationFailed(*chunk.wrong)
        return chunk.leaves

    def _check_suspension(self, entry: object, stored: Stored) -> None:
        """Check that nothing follows the suspension of the log's key but its end. Raises: Malformed."""
        kind = stored[2]
        if self._suspended and not KINDS[kind].ends_suspension:
            raise Malformed("kind", f"is {kind}, and the log's key is suspended")
        if kind == LOG_KEY_SUSPENSION or self._suspended:
            assert isinstance(entry, Entry), "is no run"
            self._suspended = kind == LOG_KEY_SUSPENSION and entry.command.body["suspended"] is True

    def _decide_run(self, run: SignedRun, stored: Stored, index: int) -> None:
        """Decide by the cached permit of an equal run, or in full."""
        permit = self._permits.permit(run, index)
        if permit is None:
            self._decide(run, Entry.parse(stored[-1]), index)
            return
        key, charge = permit
        if self._signatures.enabled:
            self._signatures.add(index, run.entry.signature, run.raw, key)
        apply_effect(self._state, run.read.effect, index, self._state.account_sums)
        if charge is not None and not self._permits.fits(charge):
            check_fits(self._state, Entry.parse(stored[-1]))

    def _decide(self, run: SignedRun | None, entry: Entry, index: int) -> None:
        signers: list[SignerKey] = []

        def witness(signature: str, raw: bytes, key: SignerKey) -> None:
            signers.append(key)
            self._signatures.add(index, signature, raw, key)

        priced = check_before(self._state, entry, index, self._log_x, witness, self._permits.gate)
        apply(self._state, entry, index)
        check_fits(self._state, entry)
        self._permits.keep(run, entry, signers[-1], priced)


def _stored_chunks(book: Snapshot) -> Iterator[list[Stored]]:
    """The stored log, in chunks of limited entries and bytes."""
    table = ENTRY
    chosen = select(table.c.position, table.c.id, table.c.kind, table.c.time, table.c.data).order_by(table.c.position)
    chunk, size = list[Stored](), 0
    with book.connection.execute(chosen, execution_options={"yield_per": _FETCHED}) as result:
        for rows in result.partitions():
            fetched: list[Any] = [tuple(row) for row in rows]
            chunk += fetched
            size += sum(len(row[4]) for row in fetched)
            if len(chunk) >= CHUNK or size >= CHUNK_BYTES:
                yield chunk
                chunk, size = [], 0
    if chunk:
        yield chunk


def _check_documents(book: Snapshot) -> int:
    """Hash every document; how many there are. Raises: VerificationFailed, for one whose bytes have another digest."""
    table, count = DOCUMENT, 0
    with book.connection.execute(select(table.c.digest, table.c.data), execution_options={"yield_per": 64}) as result:
        for name, data in result:
            if c.digest(bytes(data)) != name:
                raise VerificationFailed(None, f"document {name}: its bytes have another digest")
            count += 1
    return count


__all__ = ["Fork", "Shorter", "VerificationFailed", "verify", "verify_book"]
