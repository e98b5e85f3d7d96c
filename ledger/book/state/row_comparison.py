"""Rows are for readers: here they are compared with what the writer decides on, again and again while the book is open.

Nothing is decided on a row, so anyone who changes one gains nothing; but readers would be shown a false balance. Every
twenty seconds the writer, between two batches, gives a snapshot of the database and a copy of what it has in memory at
the same size of the log. A thread of its own compares the two: every row of accounts, open charges, organisations,
keys, contracts, policies, lineage, and the documents that they name, and how many rows there are of charges and keys.
Then it goes on through the log, and compares the rows of settled charges with what their entries say
(:mod:`ledger.book.state.settled_comparison`), a third of it each time: so all rows are compared within a minute. It
takes a tenth of a processor, and more only if it would not be done in time: in the first minute after a book of a
million entries was opened, most of one.

The first row that differs, or entry that the nodes of the tree no longer prove, is named once, in the log of the
service, and no state is read any more until the book was opened anew, which refuses it as long as the row differs. The
writer goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillWaiting
from contextlib import contextmanager, suppress
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from ledger.book.state.pinned_state import Pinned
from ledger.book.state.settled_comparison import Compared, SettledComparison
from ledger.book.state.settled_records import SettledRecords
from ledger.book.submitted_command import BookBusy, BookStopped, PricesChange, RowsDiffer
from ledger.log.verification_findings import VerificationFailed
from ledger.store.database_state import ROW_FAULTS, DatabaseState, check_documents, check_open_rows, count_rows
from ledger.wire.malformed import Malformed

EVERY_S: Final = 20.0
"""From the beginning of one comparison to that of the next."""
LONG: Final = 65_536
"""Entries of a book from which on the first comparison begins when it is opened, as there is much to compare."""
SHARE: Final = 0.1
"""The share of a processor that a comparison takes if it is done in time with that."""
OPEN_S: Final = 3.0
"""Within which the rows of all that is open are to be compared."""
WITHIN_S: Final = 15.0
"""Within which a whole comparison is to be done."""
_REST_S: Final = 1.0
"""Between two comparisons at least."""
_TICK_S: Final = 0.05
_DIFFERENCES: Final = (VerificationFailed, *ROW_FAULTS)
"""What a comparison with a changed row, entry or node of the tree raises; none of it may end the thread unnoticed."""
_LOG: Final = logging.getLogger("ledger.book")


class Pace:
    """How long a comparison rests after each piece of work: as its share of a processor asks, if that is in time."""

    def __init__(
        self,
        rest: Callable[[float], object],
        clock: Callable[[], float] = time.monotonic,
        worked: Callable[[], float] = time.thread_time,
    ) -> None:
        """Begin now.

        Args:
            rest: waits so many seconds.
            clock: seconds that go by.
            worked: seconds of a processor that this thread has taken.
        """
        self._rest, self._clock, self._thread_time = rest, clock, worked
        self._begun, self._last = clock(), worked()
        self._settled = self._begun

    def rest(self) -> None:
        """Rest within the work on what is open."""
        self._rest_until(self._begun + OPEN_S)
        self._settled = self._clock()

    def rest_at(self, share: float) -> None:
        """Rest where a share of the settled charges is compared; behind an even pace there is no rest."""
        left = max(0.0, self._begun + WITHIN_S - self._settled)
        self._rest_until(self._settled + left * share)

    def _rest_until(self, end: float) -> None:
        wanted, left = (self._thread_time() - self._last) * (1 / SHARE - 1), end - self._clock()
        if min(wanted, left) > 0:
            self._rest(min(wanted, left))
        self._last = self._thread_time()


class RowComparison:
    """Compares rows in a thread of its own until it is closed.

    Attributes:
        difference: the first row that was found to differ, in words; None as long as none was.
        compared: how much of the log the last comparison has looked at.
    """

    def __init__(
        self, pinning: Callable[[], Future[Pinned | None]], records: SettledRecords, every_s: float = EVERY_S
    ) -> None:
        """Start the thread.

        Args:
            pinning: asks the writer for a snapshot.
            records: where the log names each charge and key.
            every_s: from the beginning of one comparison to that of the next.
        """
        self._every_s = every_s
        self._first_s = 0.0 if len(records.ids) >= LONG else every_s
        self._pinning, self._settled = pinning, SettledComparison(records)
        self._closing = threading.Event()
        self._turn, self._blaming = threading.Lock(), threading.Lock()
        self.difference: str | None = None
        self.compared = Compared(0, 0)
        self._thread = threading.Thread(target=self._run, name="book-rows", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; before the writer ends."""
        self._closing.set()
        self._thread.join()

    def compare(self) -> bool:
        """Compare the current rows now, and a part of the settled ones; whether that could be done."""
        with self._turn:
            pinned = self._pinned()
            if pinned is None:
                return False
            try:
                self._compare(pinned, Pace(self._closing.wait))
            except _DIFFERENCES as found:
                self._found(_words(found))
            except SQLAlchemyError:
                return False
            finally:
                pinned.connection.close()
            return True

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """A block in which a command may fail because of a row: prices are computed from rows, and decided without.

        Raises:
            RowsDiffer: if a row is known to differ, in place of an error that it may have caused.
        """
        try:
            yield
        except Exception as error:
            self.blame(error)
            raise

    def blame(self, error: Exception) -> None:
        """What :meth:`blamed` does with an error. Raises: RowsDiffer."""
        if isinstance(error, BookBusy | BookStopped) and not isinstance(error, PricesChange):
            return
        # One after the other: what the first finds is known to the others.
        with self._blaming:
            if self.difference is None and (pinned := self._pinned()) is not None:
                with pinned.connection, suppress(SQLAlchemyError):
                    try:
                        check_open_rows(DatabaseState(pinned.connection), pinned.parts)
                    except VerificationFailed as found:
                        self._found(str(found))
        self.check()

    def check(self) -> None:
        """Raises: RowsDiffer, if a row is known to differ."""
        if self.difference is not None:
            raise RowsDiffer(f"a row was changed by another hand: {self.difference}")

    def _run(self) -> None:
        rest_s = self._first_s
        while not self._closing.wait(rest_s) and self.difference is None:
            begun = time.monotonic()
            self.compare()
            rest_s = max(min(_REST_S, self._every_s), begun + self._every_s - time.monotonic())

    def _pinned(self) -> Pinned | None:
        future = self._pinning()
        while not self._closing.is_set():
            with suppress(StillWaiting):
                return future.result(timeout=_TICK_S)
        future.add_done_callback(_let_go)
        return None

    def _found(self, difference: str) -> None:
        if self.difference is None:
            self.difference = difference
            _LOG.error("a row was changed by another hand, and no state is read from now on: %s", difference)

    def _compare(self, pinned: Pinned, pace: Pace) -> None:
        rows = DatabaseState(pinned.connection)
        check_open_rows(rows, pinned.parts, pace.rest)
        check_documents(rows, pinned.parts, pace.rest)
        for name, count in pinned.counts.items():
            if (stored := count_rows(rows, name)) != count:
                raise VerificationFailed(None, f"{name}: there are {stored} rows, and the entries make {count}")
        self.compared = self._settled.compare(pinned, rows, pace.rest_at, self._closing.is_set)


def _words(found: Exception) -> str:
    return str(found) if isinstance(found, VerificationFailed | Malformed) else f"{type(found).__name__}: {found}"


def _let_go(future: Future[Pinned | None]) -> None:
    if not future.cancelled() and future.exception() is None and (pinned := future.result()) is not None:
        pinned.connection.close()
