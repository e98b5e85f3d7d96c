"""Third stop of a command: its batch is signed and committed, and its caller gets an outcome with a receipt.

A thread of its own commits, so that the writer decides the next batch meanwhile. Where few commands wait, there is
little to decide meanwhile, and the writer commits by itself: handing over costs more than it gains. No one is
answered before the commit that holds its entry has returned. A commit that fails has an unknown outcome: nothing more
is committed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from ledger.book.call_queue import Answer, Call
from ledger.book.checkpoint_file import CheckpointFile
from ledger.book.lost_database import busy_where_lost
from ledger.book.opening_checks import recheck
from ledger.book.prepare import AGAIN_MAX
from ledger.book.submitted_command import PricesChange
from ledger.log.checkpoint import LogSigner
from ledger.store.database_state import PROJECTIONS
from ledger.store.engine import is_postgres, lock_log, run_plainly
from ledger.store.merkle_tables import LogTail, appended, lock_and_read
from ledger.store.postgres.pipeline import committed_together
from ledger.store.projection_table import put_rows, rows_of
from ledger.store.schema_revision import BookUnusable, check_revision
from ledger.store.sqlite_file.file_lock import FileLock
from ledger.store.successor_book import check_unmoved
from ledger.store.tables import CHECKPOINT, ENTRY, TREE_NODE
from ledger.wire.malformed import Malformed

if TYPE_CHECKING:
    from ledger.book.batch import Batch

Finished = tuple["Batch | None", BaseException | None]
"""A batch whose commit is over, and what it raised; or what stopped the thread between two batches."""
_Task = tuple["Batch", Connection | None]
_KEEP: Final = "keep"
"""The message that there is a newer checkpoint."""
_REST_S: Final = 3_600.0
_WRITE_NOTHING: Final = "SELECT pg_logical_emit_message(true, 'epsilon', '')"
"""A transaction that changes no table, and whose commit is sent to the standby."""


def close_batch(batch: Batch, signer: LogSigner) -> None:
    """Sign a checkpoint over a decided batch, under which each recorded outcome has its receipt.

    The outcomes are for callers once the batch is committed, and not before.
    """
    state = batch.state
    if batch.rows:
        state.note = signer.sign(batch.tree.size, batch.tree.root())
        batch.changes = state.take_changes()
    batch.receipts.note = state.note
    # What the proofs of older entries need is read now; those of new ones need nothing that the batch has not.
    batch.tree.proofs(batch.repeated)


def commit_batch(connection: Connection, batch: Batch) -> None:
    """Write the rows of a closed batch and commit them, on PostgreSQL in one round trip.

    The entries come after what they change, where the database compares their places.

    Raises:
        Malformed: if the log has other entries than those that the batch was decided on.
    """
    # On PostgreSQL the state has caught up under the lock, and the database compares each place.
    if not is_postgres(connection) and (found := appended(connection)) != batch.start:
        raise Malformed("checkpoint", f"is of {batch.start} entries, the book has {found} others")
    # Made before any is sent: the server does not count a session as idle that has sent half of a batch.
    changed = [(PROJECTIONS[name].table, rows_of(PROJECTIONS[name], values)) for name, values in batch.changes.items()]
    with committed_together(connection):
        for table, rows in changed:
            put_rows(connection, table, rows, replaces=True)
        put_rows(connection, ENTRY, batch.rows)
        put_rows(connection, TREE_NODE, batch.tree.added)
        put_rows(connection, CHECKPOINT, [(batch.tree.size, batch.receipts.note)])


def answers_of(batch: Batch) -> tuple[list[tuple[Call, Answer]], list[Call]]:
    """What a committed batch answers: the calls that it ends, and those that go on once a price is computed."""
    answers: list[tuple[Call, Answer]] = []
    unpriced: list[Call] = []
    for call, outcomes, missing in batch.parts:
        call.outcomes += outcomes
        if len(call.outcomes) == call.size:
            answers.append((call, call.outcomes))
        elif missing and call.unpriced > AGAIN_MAX:
            detail = "the policies and contracts change faster than the command is priced; send it again"
            answers.append((call, PricesChange(detail)))
        elif missing:
            unpriced.append(call)
    return answers, unpriced


class Committer:
    """Commits batches, one after the other; its thread also keeps the newest checkpoint outside the book."""

    def __init__(
        self,
        writes: Engine,
        lock: FileLock | None,
        kept: CheckpointFile | None,
        finished: Callable[[Finished], None],
    ) -> None:
        """Start the thread.

        Args:
            writes: what it writes by.
            lock: the lock on the file of an SQLite book.
            kept: the file of the newest checkpoint.
            finished: is called when a commit is over, in the thread that committed; answers the callers.
        """
        self._writes, self._lock, self._kept, self._finished = writes, lock, kept, finished
        self._own: Connection | None = None
        self._followed = 0
        self._rests = False
        self._inbox: SimpleQueue[_Task | str | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="book-commits", daemon=True)
        self._thread.start()

    def begin(self) -> Connection:
        """A connection in a new writing transaction, which holds the lock of the log.

        Raises:
            SQLAlchemyError: if the database fails.
            BookUnusable, FileChangedError: if the book is no longer the one that was opened.
        """
        connection = self._writes.connect()
        try:
            return self._begun(connection)
        except BaseException:
            connection.close()
            raise

    def begin_after(self, size: int) -> tuple[Connection, LogTail]:
        """The same on PostgreSQL, and what other processes appended after the first ``size`` entries.

        Raises:
            BookBusy: if the database does not answer, or another session keeps the lock: nothing was decided.
            BookUnusable: if the book is no longer the one that was opened.
        """
        with busy_where_lost():
            connection = self._writes.connect()
            try:
                connection.begin()
                found = lock_and_read(connection, size)
                check_revision(found.revision)
                # A batch that only repeats outcomes writes no row, which the trigger of the seal would refuse.
                check_unmoved(found.successor)
            except BaseException:
                connection.close()
                raise
        return connection, found

    def _begun(self, connection: Connection) -> Connection:
        connection.begin()
        lock_log(connection)
        recheck(connection, self._lock)
        return connection

    def commit(self, batch: Batch, connection: Connection | None, *, here: bool) -> None:
        """Commit a closed batch, in a transaction that was begun for it if there is one; not while another is.

        Args:
            here: in the calling thread, which has nothing to do meanwhile.
        """
        if not here:
            self._inbox.put((batch, connection))
            return
        self._serve(batch, connection)
        if self._rests:
            self._rests = False
            self._inbox.put(_KEEP)

    def close(self) -> None:
        """End the thread, once it has committed what it has."""
        self._inbox.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while (task := self._take()) is not None:
                if not self._serve(*task):
                    return
                self._keep()
            if self._kept is not None:
                # What is not of this book stays there, and the next opening refuses one of the two.
                with suppress(OSError, SQLAlchemyError, BookUnusable):
                    self._kept.write()
            if self._own is not None:
                self._own.close()
        except BaseException as error:  # noqa: BLE001 - the writer stops, whatever it was
            self._finished((None, error))

    def _take(self) -> _Task | None:
        while True:
            # First of all: a checkpoint that is newer than what is looked at next wakes the thread.
            self._rests = self._kept is not None
            try:
                task = self._inbox.get(timeout=None if self._kept is None else min(_REST_S, self._kept.due_s()))
            except Empty:
                task = _KEEP
            if not isinstance(task, str):
                return task
            self._keep()

    def _keep(self) -> None:
        if self._kept is not None and not self._kept.due_s():
            # A database that does not answer is queried again: nothing is recorded meanwhile.
            with suppress(SQLAlchemyError):
                self._kept.write()

    def _serve(self, batch: Batch, connection: Connection | None) -> bool:
        try:
            if batch.rows and connection is None:
                self._commit_alone(batch)
            elif batch.rows and connection is not None:
                with connection:
                    commit_batch(connection, batch)
                self._followed = batch.tree.size
            elif connection is not None:
                with connection:
                    self._follow(connection, batch)
        except BaseException as error:  # noqa: BLE001 - whatever it was, the outcome is unknown
            self._finished((batch, error))
            return False
        if self._kept is not None and batch.receipts.note is not None:
            self._kept.note = batch.receipts.note
        self._finished((batch, None))
        return True

    def _follow(self, connection: Connection, batch: Batch) -> None:
        """Commit after entries that a batch without rows repeats: it waits until the standby has what came before it.

        Another process may have recorded them, and ended while it waited for the standby.
        """
        if max(batch.repeated, default=-1) >= self._followed:
            with committed_together(connection):
                run_plainly(connection, _WRITE_NOTHING)
            self._followed = batch.start

    def _commit_alone(self, batch: Batch) -> None:
        """Commit where no other process writes, by one connection for all batches."""
        if self._own is None:
            self._own = self._writes.connect()
        try:
            commit_batch(self._begun(self._own), batch)
        except BaseException:
            # Nothing is committed after this, and the next process finds no lock.
            self._own.close()
            raise
