"""One entry on the log's own key, recorded while no process of the service appends.

An SQLite book has one writing process, which must have ended: this one takes its lock. On PostgreSQL others may run;
each reads the entry under the lock of the log, before its next batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Engine

from ledger.book.batch import Batch, Recorder
from ledger.book.checkpoint_file import CheckpointFile, hold, keep_checkpoint
from ledger.book.opening_checks import begin_epoch, recheck, take_lock, usable_state
from ledger.book.publish import close_batch, commit_batch
from ledger.book.submitted_command import BookUnusable
from ledger.book.wall_clock import ClockWatch, WallClock
from ledger.book.writer_state import WriterState
from ledger.commands.context import PendingCommand
from ledger.commands.verdict_cache import VerdictCache
from ledger.domain.gate import Gate
from ledger.log.checkpoint import LogSigner
from ledger.store.cosignatures import newest_cosigned
from ledger.store.engine import ShortReads, engine_of, is_postgres, lock_log
from ledger.store.merkle_tables import latest_checkpoint
from ledger.store.snapshot import Log, Snapshot
from ledger.store.sqlite_file.file_lock import FileLock


@dataclass(frozen=True, slots=True, kw_only=True)
class BookPlace:
    """A book, and what it is opened with.

    Attributes:
        url: of the book.
        gate: decides, where a charge lapses first.
        log_key: the key in force.
        origin: the log's name.
        clock: Unix milliseconds.
        watch: what the clock is held against.
        volatile: accept a PostgreSQL server that may lose what it committed.
        show_first: shows the book to witnesses before anything is signed, and returns their times (Unix ms).
    """

    url: str
    gate: Gate
    log_key: Ed25519PrivateKey
    origin: str
    clock: Callable[[], int]
    watch: ClockWatch | None = None
    volatile: bool = False
    show_first: Callable[[], Iterable[int]] = tuple

    @contextmanager
    def opened(self, kept: Path | None) -> Iterator[OpenedLog]:
        """The book, open for one entry.

        Args:
            kept: the file that holds its newest checkpoint.

        Raises:
            BookUnusable: as :meth:`ledger.book.book.Book.open`; for a book without an entry.
            BookPaused: if the clock is not believed.
        """
        lock = take_lock(self.url)
        engines = engine_of(self.url, writes=True), engine_of(self.url, writes=False)
        try:
            recorder = Recorder(self.gate, WallClock(self.clock, self.watch), LogSigner(self.log_key, self.origin))
            keeping = CheckpointFile.of(kept, recorder.signer, engines[1], lock)
            state = usable_state(engines[1], recorder.signer.key, keeping, None, volatile=self.volatile)
            state.statements.enabled = False
            with engines[1].begin() as connection:
                recorder.clock.begin(state.time, newest_cosigned(Log(connection)))
                before = latest_checkpoint(connection)
            for time in self.show_first():
                recorder.clock.witnessed(time)
            if before is None:
                raise BookUnusable("the book has no entry yet: start it with the new key, there is nothing to replace")
            yield OpenedLog(engines, lock, recorder, state, before)
            state.close()
        finally:
            for engine in engines:
                engine.dispose()
            if lock is not None:
                lock.release()


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """A book that is open for one entry on its own key.

    Attributes:
        recorder: signs by the key in force.
        before: the newest checkpoint.
    """

    _engines: tuple[Engine, Engine]
    _lock: FileLock | None
    recorder: Recorder
    _state: WriterState
    before: str

    def hold(self, kept: Path) -> None:
        """Let no other book be open whose newest checkpoint is kept in this file. Raises: BookUnusable."""
        hold(kept, self._lock)

    def keep(self, kept: Path, note: str) -> None:
        """Keep a checkpoint of the book in a file, unless a newer one is there. Raises: BookUnusable."""
        keep_checkpoint(kept, note, self.recorder.signer.key.name, self._engines[1])

    def record(self, command: Callable[[Snapshot], PendingCommand], signer: LogSigner, refused: str) -> tuple[int, str]:
        """Record one command and commit it; the index of its entry, and the checkpoint over it.

        Args:
            command: makes it, given the book under the lock of the log.
            signer: signs the checkpoint.
            refused: begins the message if the command is not recorded.

        Raises:
            BookUnusable, BookPaused.
        """
        writes, reads = self._engines
        begin_epoch(writes, self._lock)
        with writes.connect() as connection:
            connection.begin()
            lock_log(connection)
            recheck(connection, self._lock)
            if is_postgres(connection):
                self._state.catch_up(connection)
            pending = command(Snapshot(connection))
            batch = Batch(ShortReads(reads), self.recorder, self._state, VerdictCache(), ends_suspension=True)
            outcome = batch.record(pending)
            if outcome.index is None:
                raise BookUnusable(f"{refused}: {outcome.detail}")
            close_batch(batch, signer)
            assert batch.receipts.note is not None, "a batch with an entry is signed"
            commit_batch(connection, batch)
        return outcome.index, batch.receipts.note
