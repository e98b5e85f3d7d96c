"""Snapshots of the database, each with a copy of what the writer has in memory at the same size of the log.

The row comparison asks for one (:mod:`ledger.book.state.row_comparison`). The writer gives it between two batches,
when no commit is under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from ledger.book.state.pinned_state import Pinned
from ledger.book.writer_state import WriterState
from ledger.store.merkle_tables import log_size


class PinnedSnapshots:
    """Requests without an answer yet; for the writing thread alone."""

    def __init__(self, reads: Engine, begin: Callable[[], Connection], caught_up: Callable[[], None]) -> None:
        """Take snapshots through ``reads``, inside a writing transaction that ``begin`` begins.

        Args:
            caught_up: is called when entries of other processes were applied.
        """
        self._reads, self._begin, self._caught_up = reads, begin, caught_up
        self._requests: deque[Future[Pinned | None]] = deque()

    def __bool__(self) -> bool:
        """Whether one is requested."""
        return bool(self._requests)

    def request(self, future: Future[Pinned | None]) -> None:
        """Note who waits for a snapshot."""
        self._requests.append(future)

    def give(self, state: WriterState) -> None:
        """Answer each request; no batch is being decided or committed.

        Raises:
            Malformed: if the entries of other processes cannot be applied.
            SQLAlchemyError: if the database fails while they are applied.
        """
        try:
            while self._requests:
                taken = self._taken(state)
                self._requests.popleft().set_result(taken)
        finally:
            # Where the writer stops, no one waits on.
            while self._requests:
                self._requests.popleft().set_result(None)

    def _taken(self, state: WriterState) -> Pinned | None:
        """A snapshot; None if the database does not answer."""
        size, pinned = state.size, None
        try:
            reader = self._reads.connect()
        except SQLAlchemyError:
            return None
        try:
            with self._begin() as connection:
                state.catch_up(connection)
                # The first read fixes the snapshot, and no one commits before this transaction ends.
                if log_size(reader) == state.size:
                    pinned = state.pinned(reader)
        except SQLAlchemyError:
            if state.size != size:
                raise
        finally:
            if state.size > size:
                self._caught_up()
            if pinned is None:
                reader.close()
        return pinned
