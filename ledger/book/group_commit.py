"""Group commit: the one writing thread of a process takes every waiting call as one batch, transaction and commit.

It also wakes for what is due without a command: the deadline of a pending charge, so that its headroom returns on time,
and the newest checkpoint, which goes to a file outside the book.

A commit that fails has an unknown outcome: the writer stops for good, every caller gets BookStopped, and no charge is
given back.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Final

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from ledger.book.batch import Batch, Recorder
from ledger.book.checkpoint_file import CheckpointFile
from ledger.book.opening_checks import recheck
from ledger.book.publish import publish
from ledger.book.submitted_command import BookPaused, BookStopped, Outcome
from ledger.book.writer_state import WriterState
from ledger.commands.context import PendingCommand
from ledger.store.engine import lock_log
from ledger.store.merkle_tables import log_size
from ledger.store.schema_revision import BookUnusable
from ledger.store.sqlite_file.file_lock import FileChangedError, FileLock

BATCH_MAX: Final = 512
"""Commands of one batch, unless one call has more."""
REST_S: Final = 60.0
"""How long the writer sleeps at most: another process may have recorded a charge whose deadline comes first."""
PAUSED_REST_S: Final = 1.0
"""How often the clock is read while writing pauses."""
CLOSED: Final = "the book is closed"
_TICK_S: Final = 0.01

_Call = tuple[Sequence[PendingCommand], "Future[list[Outcome]]"]


class Writer:
    """Takes calls from many threads, each some commands in order, and gives their outcomes when they are durable."""

    def __init__(
        self,
        engines: tuple[Engine, Engine],
        recorder: Recorder,
        state: WriterState,
        kept: CheckpointFile | None,
        lock: FileLock | None,
    ) -> None:
        """Start the thread.

        Args:
            engines: what the thread writes by, and what it reads by.
            recorder: decides and signs.
            state: the state of the book, which belongs to the thread from here on.
            kept: the file of the newest checkpoint.
            lock: the lock on the file of an SQLite book.
        """
        self._writes, self._reads = engines
        self._state = state
        self._lock = lock
        self._recorder = recorder
        self._kept = kept
        self._waiting: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._ending = False
        self.stopped: str | None = None
        self._thread = threading.Thread(target=self._run, name="book-writer", daemon=True)
        self._thread.start()

    def send(self, pending: Sequence[PendingCommand]) -> Future[list[Outcome]]:
        """Queue prepared commands to be decided in order, in one commit; without any, only lapses that are due.

        The future has fewer outcomes than commands if the next command lacks a price that it needs now and must be
        prepared again; it raises BookStopped if the outcome is unknown.
        """
        future: Future[list[Outcome]] = Future()
        self._waiting.put((pending, future))
        if self.stopped is not None or not self._thread.is_alive():
            # The writer may have drained its queue and ended just before this was put there.
            self._refuse_waiting()
        return future

    def check_storage(self, connection: Connection) -> None:
        """Check that what is beside the log may be written too. Raises: BookStopped."""
        if self.stopped is not None:
            raise BookStopped(self.stopped)
        try:
            recheck(connection, self._lock)
        except (BookUnusable, FileChangedError) as error:
            raise BookStopped(str(error)) from None

    def close(self) -> None:
        """Commit what is waiting, end the thread and release the lock."""
        self._waiting.put(None)
        self._thread.join()
        if self._lock is not None:
            self._lock.release()
        self.stopped = CLOSED
        self._refuse_waiting()

    def _run(self) -> None:
        while not self._ending:
            calls: list[_Call] | None = None
            try:
                calls = self._take()
                if calls is None:
                    self._idle()
                elif calls:
                    self._serve(calls)
            except BaseException as error:  # noqa: BLE001 - whatever it was, the outcome is unknown
                self._stop(error, calls or [])
                return
        if self._kept is not None:
            with suppress(OSError):
                self._kept.write()

    def _take(self) -> list[_Call] | None:
        """The calls of one batch; None if there are none and something may be due."""
        try:
            call = self._waiting.get_nowait()
        except queue.Empty:
            try:
                call = self._waiting.get(timeout=self._rest_s())
            except queue.Empty:
                return None
        calls, size = [], 0
        while call is not None:
            calls.append(call)
            size += len(call[0])
            if size >= BATCH_MAX:
                return calls
            try:
                call = self._waiting.get_nowait()
            except queue.Empty:
                return calls
        self._ending = True
        return calls

    def _rest_s(self) -> float:
        """How long until something is due."""
        rest = REST_S if self._kept is None else min(REST_S, self._kept.due_s())
        if self._recorder.clock.paused is not None:
            return PAUSED_REST_S
        deadline = self._state.next_deadline()
        if deadline is not None:
            rest = min(rest, (deadline + 1 - self._recorder.clock.wall()) / 1000)
        return max(rest, _TICK_S)

    def _idle(self) -> None:
        deadline = self._state.next_deadline()
        with suppress(BookPaused):
            if (deadline is not None and deadline < self._recorder.now(self._state.time)) or self._is_behind():
                self._commit([])
        if self._kept is not None and not self._kept.due_s():
            self._kept.write()

    def _is_behind(self) -> bool:
        """Whether another process has appended entries. If the database does not answer, it is asked again later."""
        with suppress(SQLAlchemyError), self._reads.begin() as connection:
            return log_size(connection) > self._state.size
        return False

    def _serve(self, calls: list[_Call]) -> None:
        try:
            answers = self._commit([pending for pending, _ in calls])
        except BookPaused as paused:
            for _, future in calls:
                future.set_exception(paused)
            calls.clear()
            return
        for (_, future), outcomes in zip(calls, answers, strict=True):
            future.set_result(outcomes)
        calls.clear()
        if self._kept is not None and not self._kept.due_s():
            self._kept.write()

    def _commit(self, calls: list[Sequence[PendingCommand]]) -> list[list[Outcome]]:
        """Decide and commit one batch. Raises: BookPaused, with nothing recorded."""
        with self._writes.begin() as connection:
            lock_log(connection)
            recheck(connection, self._lock)
            batch = Batch(connection, self._recorder, self._state)
            self._state.expect([pending for call in calls for pending in call])
            outcomes = publish(batch, self._recorder.signer, [batch.record_call(call) for call in calls])
        self._state.committed(self._state.size)
        if self._kept is not None and self._state.note is not None:
            self._kept.note = self._state.note
        return outcomes

    def _stop(self, error: BaseException, calls: list[_Call]) -> None:
        # The driver's message, without the statement and its values.
        reported = str(getattr(error, "orig", None) or error).strip().partition("\n")[0][:300]
        self.stopped = (
            f"the book stopped after {type(error).__name__}: {reported}. Whether the last commands were "
            "recorded is unknown: open the book again and send them again with the same ids"
        )
        for _, future in calls:
            future.set_exception(BookStopped(self.stopped))
        self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        while True:
            try:
                waiting = self._waiting.get_nowait()
            except queue.Empty:
                return
            if waiting is not None:
                waiting[1].set_exception(BookStopped(self.stopped or CLOSED))
