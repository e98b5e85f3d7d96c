"""Group commit: one thread of a process reads, verifies and decides every command; another one commits what it decided.

Callers only put their calls into a queue. While one batch is being committed, the writer decides the next on the state
that the first will leave; it passes it on when the commit has returned. The one exception is a commit that fails: its
outcome is unknown, so the state, which is ahead of the database, is good for nothing. The writer stops for good, no
later batch is committed, every caller gets BookStopped, and no charge is given back.

Several processes may write one book on PostgreSQL. There a batch is decided inside the lock of the log, on what the
other processes recorded, and only reading and verifying go on during a commit.

The writer also wakes for what is due without a command: the deadline of a pending charge, whose headroom returns then.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from time import monotonic
from typing import Any, Final

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from ledger.book.batch import Batch, Recorder
from ledger.book.call_queue import Answer, Call, CallQueue
from ledger.book.checkpoint_file import CheckpointFile
from ledger.book.opening_checks import recheck
from ledger.book.prepare import CommandPricing
from ledger.book.publish import Committer, Finished, answers_of, close_batch
from ledger.book.state.due_work import REST_S, DueWork
from ledger.book.state.pinned_snapshots import PinnedSnapshots
from ledger.book.state.pinned_state import Pinned
from ledger.book.submitted_command import CLOSED, BookBusy, BookStopped, Outcome, Submission, reason_to_stop
from ledger.book.writer_state import WriterState
from ledger.commands.context import PendingCommand
from ledger.commands.verdict_cache import VerdictCache
from ledger.domain.charge_record import Charge
from ledger.domain.facts import Partition
from ledger.store.engine import ShortReads
from ledger.store.schema_revision import BookUnusable
from ledger.store.sqlite_file.file_lock import FileChangedError, FileLock

BATCH_MAX: Final = 512
"""Commands of one batch; a longer call goes into several."""
GATHER_S: Final = 0.000_5
"""How long the first of several callers who were answered together waits for the others to come again."""
_CLOSE: Final = "close"
"""The message that ends the writer, once what came before it is committed."""


class Writer:
    """Takes calls from many threads and coroutines, and gives their outcomes when they are durable."""

    def __init__(
        self,
        engines: tuple[Engine, Engine],
        recorder: Recorder,
        state: WriterState,
        kept: CheckpointFile | None,
        lock: FileLock | None,
    ) -> None:
        """Start the threads.

        Args:
            engines: what is written by, and what is read by. recorder: decides and signs.
            state: the state of the book, which belongs to the writing thread from here on.
            kept: the file of the newest checkpoint. lock: on the file of an SQLite book.
        """
        writes, self._reads = engines
        self._short = ShortReads(self._reads)
        self._shared = writes.dialect.name == "postgresql"
        self._state, self.statements = state, state.statements
        self._lock, self._recorder = lock, recorder
        self._queue: CallQueue[Finished | Future[Pinned | None] | Exception | str] = CallQueue()
        self._calls, self._deciding = deque[Call](), list[Call]()
        self._verdicts: VerdictCache[Any] = VerdictCache()
        self._batch: Batch | None = None
        self._transaction: Connection | None = None
        self._committing: Batch | None = None
        self._answered, self._ending = 0, False
        self._halted: Exception | None = None
        self.stopped: str | None = None
        self.pricing = CommandPricing(self._reads, recorder, self._priced)
        self._committer = Committer(writes, lock, kept, self._finished)
        self._due = DueWork(self._reads, recorder.clock, state, shared=self._shared)
        self._pins = PinnedSnapshots(self._reads, self._committer.begin, self._verdicts.drop)
        self._thread = threading.Thread(target=self._run, name="book-writer", daemon=True)
        self._thread.start()

    def send(self, submissions: Sequence[Submission], loop: asyncio.AbstractEventLoop | None = None) -> Call:
        """Queue commands to be decided in order; without any, only lapses that are due.

        Args:
            loop: of the coroutine that waits; None if a thread does.

        Returns:
            The call, whose future gets the outcomes when every recorded one is durable.

        Raises:
            BookBusy: if too many commands wait already.
            BookStopped: if the writer has stopped. The future raises it too, if the outcome is unknown.
        """
        if self.stopped is not None:
            raise BookStopped(self.stopped)
        self._queue.put(call := Call(submissions, loop))
        self._refuse_if_stopped()
        return call

    @property
    def waiting(self) -> int:
        """How many commands wait to be decided at this moment."""
        return self._queue.commands

    def suspended(self) -> str | None:
        """Why the log's key signs nothing; None if it signs."""
        return self._state.suspended

    def pin(self) -> Future[Pinned | None]:
        """A snapshot of the database and what is in memory at the same size, taken soon, with no commit under way.

        The result is None if the database does not answer, or the writer has stopped; a caller closes its connection.
        """
        future: Future[Pinned | None] = Future()
        self._queue.put_back(future)
        self._refuse_if_stopped()
        return future

    def open_charge(self, name: str) -> tuple[Charge, tuple[Partition, ...]] | None:
        """A pending charge and its partitions as the writer decides on them, None if there is none; for any thread."""
        return self._state.facts.open_charge(name)

    def check_storage(self, connection: Connection) -> None:
        """Check that what is beside the log may be written too. Raises: BookStopped."""
        if self.stopped is not None:
            raise BookStopped(self.stopped)
        try:
            recheck(connection, self._lock)
        except (BookUnusable, FileChangedError) as error:
            raise BookStopped(str(error)) from None

    def stop(self, why: Exception) -> None:
        """Decide and sign nothing more, no lapse and no statement; what is being committed may still be recorded."""
        self._halted = why
        self._queue.put_back(why)
        self._thread.join()

    def close(self) -> None:
        """Commit what is waiting, end the threads and release the lock."""
        self._queue.put_back(_CLOSE)
        self._thread.join()
        self._committer.close()
        self._state.close()
        self.pricing.close()
        if self._lock is not None:
            self._lock.release()
        self.stopped = CLOSED
        self._refuse_if_stopped()

    def _priced(self, call: Call, error: Exception | None) -> None:
        if error is not None:
            self._answer([(call, error)])
        else:
            self._queue.put_back(call)
            self._refuse_if_stopped()

    def _finished(self, finished: Finished) -> None:
        """A commit is over: answer those whose calls it ends. In the thread that committed."""
        batch, error = finished
        # The writer goes on first: waking callers takes a while.
        self._queue.put_back(finished)
        if batch is not None and error is None:
            answers, unpriced = answers_of(batch)
            self._answer(answers)
            for call in unpriced:
                self.pricing.send(call)

    def _answer(self, answers: list[tuple[Call, Answer]]) -> None:
        self._queue.answered(sum(call.size for call, _ in answers))
        Call.answer(answers)

    def _run(self) -> None:
        try:
            while not (self._ending and self._is_done()):
                idle = not self._receive()
                if self._pins and self._committing is None and self._batch is None:
                    self._pins.give(self._state)
                self._decide_waiting(idle=idle)
                if self._committing is None and self._batch is not None:
                    self._hand_over(self._batch)
        except BaseException as error:  # noqa: BLE001 - whatever it was, the outcome is unknown
            self._stop(error)

    def _is_done(self) -> bool:
        # The last changes are stated before the book is closed.
        self._state.statements.closing = self._ending
        busy = self._calls or self._batch is not None or self._committing is not None
        return not busy and self._state.statements.rest_ms(self._state.time) == math.inf

    def _receive(self) -> bool:
        """Take every message that is there, and wait for one if there is nothing else to do; whether there was any."""
        can_decide = bool(self._calls) and (
            self._committing is None or not (self._shared or self._pins or self._is_full())
        )
        at_once = can_decide or (self._ending and self._committing is None)
        # While a batch is committed, its end comes before anything is due.
        rest_s = 0 if at_once else REST_S if self._committing is not None else self._due.rest_s()
        found, since = (message := self._queue.get(rest_s)) is not None, monotonic()
        while message is not None:
            if isinstance(message, Call):
                self._calls.append(message)
            elif isinstance(message, str):
                self._ending = True
            elif isinstance(message, Future):
                self._pins.request(message)
            elif isinstance(message, Exception):
                raise message
            else:
                self._note_finished(*message)
            if len(self._calls) >= BATCH_MAX:
                break
            message = self._queue.get(0) or self._queue.get(self._patience_s(since))
        return found

    def _patience_s(self, since: float) -> float:
        """How long to wait for another call before those are decided of which the first came at ``since``."""
        waits = 0 < len(self._calls) < self._answered // 2 and self._committing is None and self._batch is None
        return since + GATHER_S - monotonic() if waits else 0

    def _note_finished(self, batch: Batch | None, error: BaseException | None) -> None:
        if error is not None:
            raise error
        self._committing = None
        if batch is not None:
            self._answered = len(batch.parts)
            self._state.committed(batch.tree.size)

    def _is_full(self) -> bool:
        return self._batch is not None and self._batch.count >= BATCH_MAX

    def _decide_waiting(self, *, idle: bool) -> None:
        """Decide the calls that wait, as far as one batch goes; without any, what is due."""
        try:
            batch = self._begin() if self._calls or self._due.is_due(idle=idle and self._committing is None) else None
        except BookBusy as busy:
            # Nothing is recorded while the clock is not believed, or the database does not answer.
            self._drop_transaction()
            if self._ending:
                self._state.statements.stop()
            self._answer([(call, type(busy)(str(busy))) for call in self._calls])
            self._calls.clear()
            return
        if batch is None:
            return
        ready = self._read(BATCH_MAX - batch.count)
        self._deciding.extend(self._calls.popleft() for _ in ready)
        self._state.expect([one for some in ready for one in some if isinstance(one, PendingCommand)])
        for call, commands in zip(self._deciding, ready, strict=True):
            if batch.record_call(call, map(self.pricing.noted, commands)) and call.waiting:
                # The rest of a call that is longer than a batch.
                self._calls.appendleft(call)
        self._deciding.clear()

    def _read(self, most: int) -> list[list[PendingCommand | Outcome]]:
        # Their signatures are verified here where others wait for the log.
        return self.pricing.read_first(self._state.facts.in_memory, self._calls, most, verified=self._shared)

    def _begin(self) -> Batch | None:
        """The batch that commands are decided in now; None if that has to wait for a commit."""
        if self._batch is not None:
            return None if self._is_full() else self._batch
        if self._shared:
            # While one process has the lock no other appends, so what can be done before is.
            self._read(BATCH_MAX)
        if (self._shared or self._pins) and self._committing is not None:
            return None
        if self._shared:
            self._due.lost = True
            self._transaction, tail = self._committer.begin_after(self._state.size)
            self._due.lost = False
            self._verdicts.forget_room()
            if not self._state.catch_up(self._transaction, tail):
                self._verdicts.drop()
        self._batch = Batch(self._short, self._recorder, self._state, self._verdicts, self._committing)
        return self._batch

    def _hand_over(self, batch: Batch) -> None:
        if self._halted is not None:
            raise self._halted
        close_batch(batch, self._recorder.signer)
        self._committing, self._batch = batch, None
        connection, self._transaction = self._transaction, None
        waiting = len(self._calls) + self._queue.messages
        # To decide a few meanwhile gains less than handing over costs.
        self._committer.commit(batch, connection, here=waiting < max(1, len(batch.parts) // 2))

    def _stop(self, error: BaseException) -> None:
        self.stopped = reason_to_stop(error)
        self._drop_transaction()
        # A commit that is under way may yet succeed, and then answers its callers.
        self._committer.close()
        parts = [part for one in (self._committing, self._batch) if one is not None for part in one.parts]
        calls = [*(part.call for part in parts), *self._deciding, *self._calls]
        Call.answer([(call, BookStopped(self.stopped)) for call in calls])
        self._refuse_if_stopped()

    def _drop_transaction(self) -> None:
        if self._transaction is not None:
            with suppress(SQLAlchemyError):
                self._transaction.close()
            self._transaction = None

    def _refuse_if_stopped(self) -> None:
        """The writer may have ended just before a call was queued."""
        if self.stopped is not None:
            self._queue.refuse_all(self.stopped)
