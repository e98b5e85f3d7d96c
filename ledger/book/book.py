"""The book: submit commands to the single writer, and read snapshots beside it.

Many threads and coroutines submit, and only put their calls into a queue; one thread decides. A batch is every command
that was waiting: one transaction, one checkpoint, one durable commit (group commit), and no caller gets an outcome
before the commit has returned. Prices that are not kept are computed in worker threads.

A commit that fails has an *unknown* outcome: the writer stops, every caller gets BookStopped, and the book takes
commands again only after it is opened anew. Then a client retries with the same id (an idempotency key) and gets the
outcome that was recorded, if one was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Engine

from ledger.book.batch import Recorder
from ledger.book.checkpoint_file import CheckpointFile
from ledger.book.document_store import DocumentStore, Storer
from ledger.book.group_commit import Writer
from ledger.book.log_key.overlap_window import signer_of_both
from ledger.book.lost_database import busy_where_lost
from ledger.book.opening_checks import begin_clock, begin_epoch, engines_of, take_lock, usable_state
from ledger.book.past_snapshot import PastSnapshot, StoppedSnapshot, sign_past
from ledger.book.pricing.quotes import Quotes
from ledger.book.state.row_comparison import RowComparison
from ledger.book.state.state_statements import StatedTree
from ledger.book.state.uncollected_objects import UNCOLLECTED
from ledger.book.submitted_command import (
    CLOSED,
    BookBusy,
    BookPaused,
    BookStopped,
    BookUnusable,
    Outcome,
    PricingRefused,
    RowsDiffer,
    Submission,
    Views,
)
from ledger.book.wall_clock import ClockWatch, WallClock
from ledger.domain.charge_record import Charge
from ledger.domain.facts import Partition
from ledger.domain.gate import Gate
from ledger.log.checkpoint import LogSigner
from ledger.store.snapshot import Snapshot

__all__ = ["Book", "BookBusy", "BookPaused", "BookStopped", "BookUnusable", "Outcome", "RowsDiffer", "Submission"]


class Book:
    """An open book. Open it with :meth:`open`: one process an SQLite book, any number a PostgreSQL one."""

    def __init__(
        self, engines: tuple[Engine, Engine, Engine], recorder: Recorder, writer: Writer, rows: RowComparison
    ) -> None:
        """Use :meth:`open`."""
        self._rows = rows
        self._engines = engines
        self._writes, _, self._reads = engines
        self._recorder, self._writer = recorder, writer
        self._quotes = Quotes(recorder, writer, rows, self.read)
        self._documents = DocumentStore(self._writes, writer.check_storage, self._snapshot, recorder.clock.wall)
        self._closed = False

    @classmethod
    def open(  # noqa: PLR0913 - where it is, who decides and signs, and its options
        cls,
        url: str,
        *,
        gate: Gate,
        log_key: Ed25519PrivateKey,
        origin: str,
        clock: Callable[[], int],
        watch: ClockWatch | None = None,
        kept: Path | None = None,
        first_start: bool = False,
        snapshot: Path | None = None,
        volatile: bool = False,
        statements: bool = True,
        show_first: Callable[[], Iterable[int]] = tuple,
        old_key: Ed25519PrivateKey | None = None,
    ) -> Self:
        """Open a book whose schema is in place.

        Args:
            url: of the database, as ``sqlite:///book.sqlite`` or ``postgresql://writer@host/book``.
            gate: decides inside the transaction.
            log_key: signs checkpoints.
            origin: the log's name, as checkpoints state it.
            clock: Unix milliseconds; an entry's time never goes back even if the clock does.
            watch: what the clock is held against, so that a jump pauses writing; without, it is believed.
            kept: a file outside the book that holds its newest checkpoint; made for an empty one, and held while open.
            first_start: make it for a book with entries too, if it is not there.
            snapshot: the file of a state's snapshot, to open faster. volatile: accept a server that may lose commits.
            statements: state the state from time to time, and at closing.
            show_first: shows the book to witnesses once it was checked and before anything is signed or written, and
                returns their times (Unix ms); what it raises leaves the book as it was.
            old_key: the key that ``log_key`` has replaced; it signs beside it while the rotation's window lasts.

        Raises:
            BookUnusable: if there is no book of this program's schema, log and history, or none that may be written.
        """
        lock = take_lock(url)
        engines = engines_of(url)
        UNCOLLECTED.hold()
        try:
            recorder = Recorder(gate, WallClock(clock, watch), LogSigner(log_key, origin))
            keeping = CheckpointFile.of(kept, recorder.signer, engines[1], lock, first_start=first_start)
            state = usable_state(engines[1], recorder.signer.key, keeping, snapshot, volatile=volatile)
            state.statements.enabled = statements
            recorder.signer = signer_of_both(engines[1], recorder.signer, old_key)
            begin_clock(engines[1], recorder.clock, state.time, show_first)
            if keeping is not None:
                keeping.begin()
            begin_epoch(engines[0], lock)
            writer = Writer(engines[:2], recorder, state, keeping, lock)
            UNCOLLECTED.hold_more()
            return cls(engines, recorder, writer, RowComparison(writer.pin, state.records))
        except BaseException:
            UNCOLLECTED.release()
            for engine in engines:
                engine.dispose()
            if lock is not None:
                lock.release()
            raise

    def submit(self, submissions: Sequence[Submission]) -> list[Outcome]:
        """Decide commands in order, each with its own outcome; returns when every recorded one is durable.

        Raises:
            BookBusy: if too many commands wait, or too many runs are being priced, or the prices of one keep changing;
                retry with the same ids.
            PricingRefused: if an organisation has no turn left to be priced; what was decided before stands.
            BookPaused: if the clock is not believed; the same.
            BookStopped: if the outcome is unknown. Retry with the same ids when the book is open again.
            RowsDiffer: if a row that prices are computed from is not what the entries make it; nothing is recorded.
        """
        if not submissions:
            return []
        call = self._writer.send(submissions)
        try:
            return self._released(call.result())
        except Exception as error:
            self._failed(error)
            raise

    async def submit_async(self, submissions: Sequence[Submission]) -> list[Outcome]:
        """As :meth:`submit`, for a coroutine: no thread waits. Raises: as it does."""
        if not submissions:
            return []
        future = self._writer.send(submissions, asyncio.get_running_loop()).future
        assert future is not None
        try:
            return self._released(await future)
        except Exception as error:
            await asyncio.to_thread(self._failed, error)
            raise

    def _failed(self, error: Exception) -> None:
        if isinstance(error, PricingRefused):
            self._released(error.decided)
        self._rows.blame(error)

    def _released(self, outcomes: list[Outcome]) -> list[Outcome]:
        for one in outcomes:
            if one.index is not None and not one.code.refused:
                self._documents.release(one.body["request"])
        return outcomes

    def quote(self, submission: Submission, views: Views | None = None) -> Outcome:
        """The decision that a command would get now (a dry run), its signature verified; it is not recorded.

        Args:
            views: what the caller may see, if it is not the true state.

        Raises:
            BookBusy: if too many runs are being priced.
            PricingRefused: if its organisation has no turn left.
            BookPaused: if the clock is not believed.
            BookStopped: if charges past their deadline cannot be settled first.
        """
        return self._quotes.quote(submission, views)

    async def quote_async(self, submission: Submission, views: Views | None = None) -> Outcome:
        """As :meth:`quote`, for a coroutine: no thread waits for its turn. Raises: as it does."""
        return await self._quotes.quote_async(submission, views)

    def meter_pricing(self, meter: Callable[[str, float], object], wait_s: Callable[[str], float]) -> None:
        """Hold whose commands are priced to a quota, from now on.

        Args:
            meter: gets the actor and the seconds of a processor of everything that is priced.
            wait_s: gives the seconds until an actor's quota has room, 0 where it has; then nothing is priced for it.
        """
        self._writer.pricing.meter, self._writer.pricing.wait_s = meter, wait_s

    def put_document(self, data: bytes, storer: Storer | None = None) -> str:
        """Store bytes beside the log under their SHA-256; idempotent.

        ``storer``: the caller of a service, which has a share of its own; without, it may take all that is left.

        Raises:
            BookBusy: if the database does not answer, or a quota of documents is used up (DocumentQuotaUsed).
            BookStopped: if the book takes no more commands.
            Malformed: if there are too many bytes.
        """
        return self._documents.put(data, storer)

    @contextmanager
    def read(self) -> Iterator[Snapshot]:
        """A snapshot of the current state (snapshot isolation); readers never block the writer.

        Raises:
            BookBusy: if the database does not answer, in the block too.
            BookStopped: if the book is closed; in the block, where state is read once the book has stopped.
            RowsDiffer: if a row is known to be another than the entries make it.
        """
        self._rows.check()
        with self._snapshot() as found:
            yield found if self._writer.stopped is None else StoppedSnapshot(found.connection, self._writer.stopped)

    @contextmanager
    def _snapshot(self) -> Iterator[Snapshot]:
        if self._closed:
            raise BookStopped(CLOSED)
        with busy_where_lost(), self._reads.begin() as connection:
            yield Snapshot(connection)

    @contextmanager
    def read_past(self, size: int) -> Iterator[PastSnapshot]:
        """The state after the first ``size`` entries, made by applying them, in time and memory in proportion to them.

        Raises:
            BookStopped: if the book is closed.
            KeyError: if the log has not so many entries.
        """
        with self.read() as now:
            yield PastSnapshot(now.connection, size, partial(self._sign_past, now))

    def _sign_past(self, now: Snapshot, size: int, root: bytes) -> str:
        """The checkpoint of an earlier size. Raises: BookStopped; and as :func:`sign_past`."""
        if self._writer.stopped is not None:
            raise BookStopped(self._writer.stopped)
        if (why := self._writer.suspended()) is not None:
            raise BookPaused(why)
        return sign_past(now, self._recorder.signer, size, root)

    def now(self) -> int:
        """The time (ms) that an entry would get now. Raises: BookPaused, BookStopped."""
        with self._snapshot() as facts:
            return self._recorder.now(facts.time)

    def witnessed(self, time_ms: int) -> None:
        """Note the time of a witness that has just cosigned, verified with a pinned key: it may end a pause."""
        self._recorder.clock.witnessed(time_ms)

    def compare_rows(self) -> str | None:
        """Compare the rows that readers see with what the writer decides on, now; the difference in words, if any.

        That is done all the while by itself, see :mod:`ledger.book.state.row_comparison`.
        """
        self._rows.compare()
        return self._rows.difference

    @property
    def difference(self) -> str | None:
        """The first row that was found to differ from what the entries make it; None as long as none was."""
        return self._rows.difference

    def open_charge(self, name: str) -> tuple[Charge, tuple[Partition, ...]] | None:
        """A pending charge and its partitions, of the signed entries and not of their rows; None if there is none."""
        return self._writer.open_charge(name)

    @property
    def paused(self) -> str | None:
        """Why nothing is written: the clock is not believed, or the log's key is suspended; None if it is written."""
        return self._recorder.clock.paused or self._writer.suspended()

    @property
    def waiting(self) -> int:
        """How many commands wait to be decided at this moment."""
        return self._writer.waiting

    def stated_tree(self, size: int) -> StatedTree | None:
        """The newest tree of the state that one of the first ``size`` entries states; None until one is known."""
        return self._writer.statements.newest(size)

    @property
    def stopped(self) -> str | None:
        """Why the book takes no more commands; None while it takes them."""
        return self._writer.stopped

    def stop(self, why: Exception) -> None:
        """Sign and record nothing more, from now on: callers that wait get BookStopped. Close the book after it.

        What is being committed at this moment may still be recorded.
        """
        self._writer.stop(why)

    def close(self) -> None:
        """Commit what is waiting, state the last changes and release the book; a stopped one is only released."""
        self._rows.close()
        self._writer.close()
        if not self._closed:
            UNCOLLECTED.release()
        self._closed = True
        for engine in self._engines:
            engine.dispose()
