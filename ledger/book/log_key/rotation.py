"""Replacing the key of a log, with no process that writes the book by the old key going on.

An SQLite book has one writing process, which must have ended: this one takes its lock. On PostgreSQL others may run;
each ends with its next batch, as it reads the entry under the lock of the log.

Whatever fails before the commit leaves the book under the old key. What is kept for the new key is written before the
commit, from what the old key signed, and after it: so the first start with the new key finds it, however this ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Engine

from ledger.book.batch import Batch, Recorder
from ledger.book.checkpoint_file import CheckpointFile
from ledger.book.opening_checks import begin_epoch, recheck, take_lock, usable_state
from ledger.book.publish import close_batch, commit_batch
from ledger.book.submitted_command import BookUnusable
from ledger.book.wall_clock import ClockWatch, WallClock
from ledger.book.writer_state import WriterState
from ledger.commands.verdict_cache import VerdictCache
from ledger.domain.gate import Gate
from ledger.files.atomic_file import SHARED, replace_file
from ledger.log.checkpoint import LogSigner, RotatingSigner
from ledger.store.cosignatures import newest_cosigned
from ledger.store.engine import ShortReads, engine_of, is_postgres, lock_log
from ledger.store.merkle_tables import latest_checkpoint
from ledger.store.snapshot import Log
from ledger.store.sqlite_file.file_lock import FileLock
from ledger.verifier import LogKey


class Rotated(NamedTuple):
    """The entry that replaced a log's key, and the checkpoint that both keys signed."""

    entry: int
    key: LogKey
    note: str


def rotate_log_key(  # noqa: PLR0913 - where the book is, both keys, who decides, and what is kept of it
    url: str,
    *,
    gate: Gate,
    log_key: Ed25519PrivateKey,
    new_key: Ed25519PrivateKey,
    origin: str,
    clock: Callable[[], int],
    watch: ClockWatch | None = None,
    kept: tuple[Path, Path] | None = None,
    volatile: bool = False,
    show_first: Callable[[], Iterable[int]] = tuple,
) -> Rotated:
    """Replace the key of a log by another one, in one entry.

    Args:
        url: of the book.
        gate: decides, where a charge lapses first.
        log_key: the key in force.
        new_key: the one that follows.
        origin: the log's name.
        clock: Unix milliseconds.
        watch: what the clock is held against.
        kept: the files that hold the newest checkpoint for the old key and for the new one; they may be the same.
        volatile: accept a PostgreSQL server that may lose what it committed.
        show_first: shows the book to witnesses before anything is signed, and returns their times (Unix ms).

    Raises:
        BookUnusable: as :meth:`ledger.book.book.Book.open`; for a book without an entry; if the new key has a use.
        BookPaused: if the clock is not believed.
    """
    lock = take_lock(url)
    engines = engine_of(url, writes=True), engine_of(url, writes=False)
    try:
        recorder = Recorder(gate, WallClock(clock, watch), LogSigner(log_key, origin))
        keeping = None if kept is None else CheckpointFile(kept[0], recorder.signer)
        state = usable_state(engines[1], recorder.signer.key, keeping, None, volatile=volatile)
        state.statements.enabled = False
        with engines[1].begin() as connection:
            recorder.clock.begin(state.time, newest_cosigned(Log(connection)))
            before = latest_checkpoint(connection)
        for time in show_first():
            recorder.clock.witnessed(time)
        if before is None:
            raise BookUnusable("the book has no entry yet: start it with the new key, there is nothing to replace")
        if kept is not None and kept[0] != kept[1]:
            _keep(kept[1], before)
        done = _committed(engines, lock, recorder, state, new_key)
        for path in () if kept is None else kept:
            _keep(path, done.note)
        state.close()
        return done
    finally:
        for engine in engines:
            engine.dispose()
        if lock is not None:
            lock.release()


def _committed(
    engines: tuple[Engine, Engine],
    lock: FileLock | None,
    recorder: Recorder,
    state: WriterState,
    new_key: Ed25519PrivateKey,
) -> Rotated:
    """The rotation, committed in one transaction of the first engine. Raises: BookUnusable, BookPaused."""
    begin_epoch(engines[0], lock)
    with engines[0].connect() as connection:
        connection.begin()
        lock_log(connection)
        recheck(connection, lock)
        if is_postgres(connection):
            state.catch_up(connection)
        done, batch = _recorded(engines[1], recorder, state, new_key)
        commit_batch(connection, batch)
    return done


def _recorded(
    reads: Engine, recorder: Recorder, state: WriterState, new_key: Ed25519PrivateKey
) -> tuple[Rotated, Batch]:
    """The batch that ends with the rotation, its checkpoint signed by both keys. Raises: BookUnusable, BookPaused."""
    batch = Batch(ShortReads(reads), recorder, state, VerdictCache(), None)
    outcome = batch.record(recorder.log_key_rotation(new_key))
    if outcome.index is None:
        raise BookUnusable(f"the log's key cannot be replaced by this one: {outcome.detail}")
    signer = RotatingSigner(recorder.signer, new_key)
    close_batch(batch, signer)
    assert batch.receipts.note is not None, "a batch with an entry is signed"
    return Rotated(outcome.index, signer.key, batch.receipts.note), batch


def _keep(path: Path, note: str) -> None:
    """Replace the file that holds the newest checkpoint. Raises: BookUnusable."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, note.encode(), mode=SHARED)
    except OSError as error:
        raise BookUnusable(f"the newest checkpoint cannot be kept at {path}: {error.strerror}") from None
