"""What the writer has to do without a command: charges lapse, the state is stated, others append entries."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from ledger.store.merkle_tables import log_size

if TYPE_CHECKING:
    from ledger.book.wall_clock import WallClock
    from ledger.book.writer_state import WriterState

REST_S: Final = 60.0
"""How long the writer sleeps at most: another process may have recorded a charge whose deadline comes first."""
PAUSED_REST_S: Final = 1.0
"""How often the clock is read, or a lost database tried, while nothing is written."""
_TICK_S: Final = 0.01


class DueWork:
    """When something is due; for the writing thread alone.

    Attributes:
        lost: whether the database did not answer when the last batch was begun; it is begun again after a rest.
    """

    def __init__(self, reads: Engine, clock: WallClock, state: WriterState, *, shared: bool) -> None:
        """Ask ``state``, and through ``reads`` the log that other processes append to, if it is ``shared``."""
        self._reads, self._clock, self._state, self._shared = reads, clock, state, shared
        self.lost = False

    def rest_s(self) -> float:
        """How long until something is due."""
        if self.lost or self._clock.paused is not None or self._state.suspended is not None:
            return PAUSED_REST_S
        now, deadline = max(self._clock.wall(), self._state.time), self._state.next_deadline()
        rest_ms = self._state.statements.rest_ms(now)
        if deadline is not None:
            rest_ms = min(rest_ms, deadline + 1 - now)
        return max(min(REST_S, rest_ms / 1000), _TICK_S)

    def is_due(self, *, idle: bool) -> bool:
        """Whether a charge lapses or the state is stated now, or another process has appended entries.

        Args:
            idle: whether there is time to query the database; otherwise it is queried later.

        Raises:
            BookPaused: if the clock is not believed.
        """
        now, deadline = self._clock.now(self._state.time), self._state.next_deadline()
        if (deadline is not None and deadline < now) or not self._state.statements.rest_ms(now):
            return True
        if self._shared and idle:
            with suppress(SQLAlchemyError), self._reads.begin() as connection:
                grown, self.lost = log_size(connection) > self._state.size, False
                return grown
        return False
