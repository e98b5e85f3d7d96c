"""Group commit: one thread of a process reads, verifies and decides every command; another one commits what it decided.

Callers only put their calls into a queue. While one batch is being committed, the writer decides the next on the state
that the first will leave; it hands it over when the commit has returned. The one exception is a commit that fails: its
outcome is unknown, so the state, which is ahead of the database, is good for nothing. The writer stops for good, no
later batch is committed, every caller gets BookStopped, and no charge is given back.

Several processes may write one book on PostgreSQL. There a batch is decided inside the lock of the log, on what the
other processes recorded, and only reading and verifying go on during a commit.

The writer also wakes for what is due without a command: the deadline of a pending charge, so that its headroom returns
on time.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from ledger.book.batch import Batch, Recorder
from ledger.book.call_queue import Answer, Call, CallQueue
from ledger.book.checkpoint_file import CheckpointFile
from ledger.book.opening_checks import recheck
from ledger.book.prepare import AGAIN_MAX, CommandPricing
from ledger.book.publish import Committer, Finished, close_batch
from ledger.book.state.row_comparison import Pinned
from ledger.book.submitted_command import BookBusy, BookPaused, BookStopped, Outcome, Submission
from ledger.book.writer_state import WriterState
from ledger.commands.context import PendingCommand
from ledger.commands.kept_verdicts import KeptVerdicts
from ledger.domain.facts import Charge, Partition
from ledger.domain.outcomes import ChargeState
from ledger.store.engine import ShortReads
from ledger.store.merkle_tables import log_size
from ledger.store.schema_revision import BookUnusable
from ledger.store.sqlite_file.file_lock import FileChangedError, FileLock

BATCH_MAX: Final = 512
"""Commands of one batch; a longer call goes into several."""
REST_S: Final = 60.0
"""How long the writer sleeps at most: another process may have recorded a charge whose deadline comes first."""
PAUSED_REST_S: Final = 1.0
"""How often the clock is read while writing pauses."""
CLOSED: Final = "the book is closed"
_TICK_S: Final = 0.01
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
            engines: what is written by, and what is read by.
            recorder: decides and signs.
            state: the state of the book, which belongs to the writing thread from here on.
            kept: the file of the newest checkpoint.
            lock: the lock on the file of an SQLite book.
        """
        writes, self._reads = engines
        self._short = ShortReads(self._reads)
        self._shared = writes.dialect.name == "postgresql"
        self._state, self.statements = state, state.statements
        self._lock = lock
        self._recorder = recorder
        self._queue: CallQueue[Finished | Future[Pinned | None] | str] = CallQueue()
        self._pins: deque[Future[Pinned | None]] = deque()
        self._calls: deque[Call] = deque()
        self._verdicts: KeptVerdicts[Any] = KeptVerdicts()
        self._deciding: list[Call] = []
        self._batch: Batch | None = None
        self._transaction: Connection | None = None
        self._committing: Batch | None = None
        self._ending = False
        self.stopped: str | None = None
        self.pricing = CommandPricing(self._reads, recorder, self._priced)
        self._committer = Committer(writes, lock, kept, self._finished)
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
        call = Call(submissions, loop)
        self._queue.put(call)
        self._refuse_if_stopped()
        return call

    def pin(self) -> Future[Pinned | None]:
        """A snapshot of the database and what is in memory at the same size, taken soon, with no commit under way.

        The future's result is None if the database does not answer; whoever gets a snapshot closes its connection.
        """
        future: Future[Pinned | None] = Future()
        self._queue.put_back(future)
        return future

    def open_charge(self, name: str) -> tuple[Charge, tuple[Partition, ...]] | None:
        """A pending charge and its partitions as the writer decides on them, None if there is none; for any thread."""
        # One look-up in a dictionary that the writer changes gives what was there or what is.
        facts = self._state.facts
        charge = facts.open_charges.open.get(name)
        if charge is None or charge.state is not ChargeState.PENDING:
            return None
        return charge, tuple(facts.partitions[ref] for ref in charge.partitions)

    def check_storage(self, connection: Connection) -> None:
        """Check that what is beside the log may be written too. Raises: BookStopped."""
        if self.stopped is not None:
            raise BookStopped(self.stopped)
        try:
            recheck(connection, self._lock)
        except (BookUnusable, FileChangedError) as error:
            raise BookStopped(str(error)) from None

    def close(self) -> None:
        """Commit what is waiting, end the threads and release the lock."""
        self._queue.put_back(_CLOSE)
        self._thread.join()
        self._committer.close()
        self._state.statements.close()
        self.pricing.close()
        if self._lock is not None:
            self._lock.release()
        self.stopped = CLOSED
        self._refuse_waiting()

    def _priced(self, call: Call, error: Exception | None) -> None:
        """A worker has priced a call, or failed to."""
        if error is not None:
            self._answer([(call, error)])
        else:
            self._queue.put_back(call)
            self._refuse_if_stopped()

    def _finished(self, finished: Finished) -> None:
        """A commit is over: answer those whose calls it ends. In the committing thread."""
        batch, error = finished
        # The writer goes on first: waking callers takes a while.
        self._queue.put_back(finished)
        if batch is not None and error is None:
            self._publish(batch)

    def _publish(self, batch: Batch) -> None:
        answers: list[tuple[Call, Answer]] = []
        for call, outcomes, missing in batch.parts:
            call.outcomes += outcomes
            if len(call.outcomes) == call.size:
                answers.append((call, call.outcomes))
            elif missing and call.unpriced > AGAIN_MAX:
                detail = "the policies and contracts change faster than the command is priced; send it again"
                answers.append((call, BookBusy(detail)))
            elif missing:
                self.pricing.send(call)
        self._answer(answers)

    def _answer(self, answers: list[tuple[Call, Answer]]) -> None:
        self._queue.answered(sum(call.size for call, _ in answers))
        Call.answer(answers)

    def _run(self) -> None:
        try:
            while not (self._ending and self._is_done()):
                idle = not self._receive()
                self._pin_waiting()
                self._decide_waiting(idle=idle)
                if self._committing is None and self._batch is not None:
                    self._hand_over(self._batch)
        except BaseException as error:  # noqa: BLE001 - whatever it was, the outcome is unknown
            self._stop(error)

    def _is_done(self) -> bool:
        busy = self._calls or self._batch is not None or self._committing is not None
        # The last changes are stated before the book is closed.
        self._state.statements.closing = self._ending
        return not busy and self._state.statements.rest_ms(self._state.time) == math.inf

    def _receive(self) -> bool:
        """Take every message that is there, and wait for one if there is nothing else to do; whether there was any."""
        can_decide = bool(self._calls) and (
            self._committing is None or not (self._shared or self._pins or self._is_full())
        )
        message = self._queue.get(0 if can_decide or (self._ending and self._committing is None) else self._rest_s())
        found = message is not None
        while message is not None:
            if isinstance(message, Call):
                self._calls.append(message)
            elif isinstance(message, str):
                self._ending = True
            elif isinstance(message, Future):
                self._pins.append(message)
            else:
                self._note_finished(*message)
            message = self._queue.get(0) if len(self._calls) < BATCH_MAX else None
        return found

    def _pin_waiting(self) -> None:
        while self._pins and self._committing is None and self._batch is None:
            self._pins.popleft().set_result(self._pinned())

    def _pinned(self) -> Pinned | None:
        size, pinned = self._state.size, None
        try:
            reader = self._reads.connect()
        except SQLAlchemyError:
            return None
        try:
            with self._committer.begin() as connection:
                self._state.catch_up(connection)
                # The first read fixes the snapshot, and no one commits before this transaction ends.
                if log_size(reader) == self._state.size:
                    pinned = self._state.pinned(reader)
        except SQLAlchemyError:
            if self._state.size != size:
                raise
        finally:
            if self._state.size > size:
                self._verdicts.drop()
            if pinned is None:
                reader.close()
        return pinned

    def _note_finished(self, batch: Batch | None, error: BaseException | None) -> None:
        if error is not None:
            raise error
        self._committing = None
        if batch is not None:
            self._state.committed(batch.tree.size)

    def _is_full(self) -> bool:
        return self._batch is not None and self._batch.count >= BATCH_MAX

    def _rest_s(self) -> float:
        """How long until something is due; while a batch is committed, its end comes first."""
        if self._committing is not None:
            return REST_S
        if self._recorder.clock.paused is not None:
            return PAUSED_REST_S
        now, deadline = max(self._recorder.clock.wall(), self._state.time), self._state.next_deadline()
        rest_ms = self._state.statements.rest_ms(now)
        if deadline is not None:
            rest_ms = min(rest_ms, deadline + 1 - now)
        return max(min(REST_S, rest_ms / 1000), _TICK_S)

    def _decide_waiting(self, *, idle: bool) -> None:
        """Decide the calls that wait, as far as one batch goes; without any, what is due."""
        try:
            batch = self._begin() if self._calls or self._is_due(idle=idle) else None
        except BookPaused as paused:
            # Nothing is recorded while the clock is not believed.
            self._drop_transaction()
            if self._ending:
                self._state.statements.stop()
            self._answer([(call, BookPaused(str(paused))) for call in self._calls])
            self._calls.clear()
            return
        if batch is None:
            return
        room = BATCH_MAX - batch.count
        ready: list[list[PendingCommand | Outcome]] = []
        while self._calls and room > 0:
            self._deciding.append(self._calls.popleft())
            ready.append(self._read(self._deciding[-1], room))
            room -= len(ready[-1])
        self._state.expect([one for some in ready for one in some if isinstance(one, PendingCommand)])
        for call, commands in zip(self._deciding, ready, strict=True):
            if batch.record_call(call, commands) and call.waiting:
                # The rest of a call that is longer than a batch.
                self._calls.appendleft(call)
        self._deciding.clear()

    def _read(self, call: Call, most: int) -> list[PendingCommand | Outcome]:
        """The first commands of a call; a price that is missing is found when they are decided."""
        for place, one in enumerate(islice(call.waiting, most)):
            if isinstance(one, Submission):
                call.waiting[place] = self.pricing.read(one)
        return [one for one in islice(call.waiting, most) if not isinstance(one, Submission)]

    def _is_due(self, *, idle: bool) -> bool:
        """Whether a charge lapses or the state is stated now, or another process has appended entries.

        Without an answer of the database it is asked later.
        """
        now, deadline = self._recorder.now(self._state.time), self._state.next_deadline()
        if (deadline is not None and deadline < now) or not self._state.statements.rest_ms(now):
            return True
        if self._shared and idle and self._committing is None:
            with suppress(SQLAlchemyError), self._reads.begin() as connection:
                return log_size(connection) > self._state.size
        return False

    def _begin(self) -> Batch | None:
        """The batch that commands are decided in now; None if that has to wait for a commit."""
        if self._batch is not None:
            return self._batch if self._batch.count < BATCH_MAX else None
        if (self._shared or self._pins) and self._committing is not None:
            for call in self._calls:
                self._read(call, BATCH_MAX)
            return None
        if self._shared:
            self._transaction = self._committer.begin()
            if not self._state.catch_up(self._transaction):
                self._verdicts.drop()
        self._batch = Batch(self._short, self._recorder, self._state, self._verdicts, self._committing)
        return self._batch

    def _hand_over(self, batch: Batch) -> None:
        close_batch(batch, self._recorder.signer)
        self._committing, self._batch = batch, None
        self._committer.commit(batch, self._transaction)
        self._transaction = None

    def _stop(self, error: BaseException) -> None:
        # The driver's message, without the statement and its values.
        reported = str(getattr(error, "orig", None) or error).strip().partition("\n")[0][:300]
        self.stopped = (
            f"the book stopped after {type(error).__name__}: {reported}. Whether the last commands were "
            "recorded is unknown: open the book again and send them again with the same ids"
        )
        self._drop_transaction()
        # A commit that is under way may yet succeed, and then answers its callers.
        self._committer.close()
        batches = [one for one in (self._committing, self._batch) if one is not None]
        self._refuse([*(part.call for batch in batches for part in batch.parts), *self._deciding, *self._calls])
        self._refuse_waiting()

    def _drop_transaction(self) -> None:
        if self._transaction is not None:
            with suppress(SQLAlchemyError):
                self._transaction.close()
            self._transaction = None

    def _refuse_if_stopped(self) -> None:
        """The writer may have ended just before a call was queued."""
        if self.stopped is not None:
            self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        while (message := self._queue.get(0)) is not None:
            if isinstance(message, Call):
                self._refuse([message])

    def _refuse(self, calls: Sequence[Call]) -> None:
        Call.answer([(call, BookStopped(self.stopped or CLOSED)) for call in calls])
