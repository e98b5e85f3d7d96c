"""Quotes: what a command would get now. Nothing is recorded, but for lapses that are due, which come first.

A quote that needs prices is made as a whole in a turn of its organisation, so that none takes longer to answer because
another organisation has many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial

from msgspec import structs

from ledger.accounts.pricing import COMPUTED
from ledger.book.batch import Recorder, outcome_of
from ledger.book.group_commit import Writer
from ledger.book.lost_database import busy_where_lost
from ledger.book.prepare import PRICING_BUSY, WAIT_S, is_priced, read_submission
from ledger.book.state.row_comparison import RowComparison
from ledger.book.submitted_command import BookBusy, Outcome, Submission, Views
from ledger.commands.context import PendingCommand
from ledger.domain.outcomes import Code
from ledger.store.snapshot import Snapshot


class Quotes:
    """Makes the quotes of one book, from any thread or coroutine; what they raise is that of ``Book.quote``."""

    def __init__(
        self,
        recorder: Recorder,
        writer: Writer,
        rows: RowComparison,
        read: Callable[[], AbstractContextManager[Snapshot]],
    ) -> None:
        """``read`` gives snapshots of the current state."""
        self._recorder, self._writer, self._rows, self._read = recorder, writer, rows, read

    def quote(self, submission: Submission, views: Views | None) -> Outcome:
        """The decision that a command would get now. Raises: BookBusy, BookStopped."""
        found = read_submission(submission)
        if isinstance(found, Outcome):
            return found
        if not is_priced(found):
            return self._quoted(found, views)
        future = self._in_turn(found, views)
        try:
            return future.result(WAIT_S)
        except TimeoutError:
            future.cancel()
            raise BookBusy(PRICING_BUSY) from None

    async def quote_async(self, submission: Submission, views: Views | None) -> Outcome:
        """The same for a coroutine: no thread waits for its turn. Raises: BookBusy, BookStopped."""
        found = read_submission(submission)
        if isinstance(found, Outcome):
            return found
        if not is_priced(found):
            return await asyncio.to_thread(self._quoted, found, views)
        try:
            # What is not begun when the time is over is not begun any more.
            return await asyncio.wait_for(asyncio.wrap_future(self._in_turn(found, views)), WAIT_S)
        except TimeoutError:
            raise BookBusy(PRICING_BUSY) from None

    def _in_turn(self, found: PendingCommand, views: Views | None) -> Future[Outcome]:
        return self._writer.pricing.in_turn(found.command.actor, partial(self._quoted, found, views))

    def _quoted(self, found: PendingCommand, views: Views | None) -> Outcome:
        with busy_where_lost(), self._rows.blamed():
            pending = self._writer.pricing.price(found)
        while True:
            with self._read() as facts:
                if not facts.due(self._recorder.now(facts.time), 1):
                    # The prices are cached; should they have changed since, they are computed once more.
                    return _decided(self._recorder, facts, structs.replace(pending, prices=COMPUTED), views)
            # A command would find them lapsed, so they lapse now.
            self._writer.send(()).result()


def _decided(recorder: Recorder, facts: Snapshot, pending: PendingCommand, views: Views | None) -> Outcome:
    """The decision that a command would get now, on what its sender may see.

    Decided on the state with the least room that there may be; where that has no room, on the one with the most, and
    what that one admits is uncertain.

    Raises:
        BookPaused: if the clock is not believed.
    """
    shown = () if views is None else views(facts, pending, recorder.now(facts.time))
    decided = recorder.decide(facts, pending, *shown[:1])
    if decided.code is Code.BUDGET_EXHAUSTED and len(shown) > 1:
        other = recorder.decide(facts, pending, shown[-1])
        if not other.code.refused:
            return structs.replace(outcome_of(pending, other), uncertain=True)
    return outcome_of(pending, decided)
